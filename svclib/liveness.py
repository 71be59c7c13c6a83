"""Liveness probes over an open connection.

A service whose event loop is blocked keeps its connections: the kernel accepts bytes, gRPC's own threads answer pings,
and a health stream is silent because the status does not change. So a client must probe it, with a timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


@dataclass(frozen=True, slots=True)
class ProbePolicy:
    """When a service counts as hung. Times are in seconds."""

    interval: float
    """From a response to the next probe."""
    timeout: float
    """For one probe."""
    max_failures: int
    """Consecutive failed probes. More than one, because a prober that was itself blocked finds its probe timed out
    before it has read the response."""

    @property
    def longest(self) -> float:
        """From the last response until a hang is detected, at most."""
        return self.interval + self.max_failures * self.timeout


async def until_unresponsive(probe: Callable[[float], Awaitable[bool]], policy: ProbePolicy) -> None:
    """Probe until ``max_failures`` probes in a row have failed. ``probe`` tells whether a response came in its seconds.

    A probe that fails early, without a connection for example, is followed by the next one only after its timeout.
    """
    clock = asyncio.get_running_loop().time
    num_failures = 0
    while num_failures < policy.max_failures:
        if not num_failures:
            await asyncio.sleep(policy.interval)
        began = clock()
        if await probe(policy.timeout):
            num_failures = 0
        else:
            num_failures += 1
            await asyncio.sleep(max(0.0, began + policy.timeout - clock()))


async def grpc_responds(channel: grpc.aio.Channel, seconds: float) -> bool:
    """Whether ``grpc.health.v1`` responds in time, with any status."""
    try:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=seconds)
    except grpc.aio.AioRpcError:
        return False
    return True
