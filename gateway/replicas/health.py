"""Whether a peer can be asked: what it says by itself, and whether it still answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from svclib.liveness import ProbePolicy, grpc_responds, until_unresponsive

PROBE_POLICY: Final = ProbePolicy(interval=1.0, timeout=1.0, max_failures=2)
"""A peer that hangs is noticed within three seconds."""


class PeerSilent(Exception):
    """The peer's connection stands, but its event loop does not turn."""


async def watch_health(channel: grpc.aio.Channel) -> AsyncGenerator[bool, None]:
    """Whether the peer serves, now and at each change. Ends, or raises ``AioRpcError``, when the peer is lost."""
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
    try:
        async for answer in call:
            yield answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        call.cancel()


async def check_answers(channel: grpc.aio.Channel) -> None:
    """Ask the peer again and again. Raises ``PeerSilent`` when it does not answer."""
    await until_unresponsive(partial(grpc_responds, channel), PROBE_POLICY)
    raise PeerSilent
