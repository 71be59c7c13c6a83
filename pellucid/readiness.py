"""Readiness and liveness probes of services over ``grpc.health.v1`` and HTTP, as any orchestrator would make them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import grpc
import httpx2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from svclib.channel import connect
from svclib.liveness import ProbePolicy, grpc_responds, until_unresponsive

_RETRY_SECONDS: Final = 0.2
_MAX_FAILURES: Final = 5


async def grpc_service(address: str) -> None:
    """Wait until ``host:port`` reports SERVING over ``grpc.health.v1``."""
    async with connect(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                async for answer in stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True):
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return
            except grpc.aio.AioRpcError:
                await asyncio.sleep(_RETRY_SECONDS)


async def http_service(url: str) -> None:
    """Wait until ``GET url`` returns 200. Polls, because HTTP has no notification."""
    async with httpx2.AsyncClient(trust_env=False, timeout=5.0) as client:
        while True:
            try:
                if (await client.get(url)).status_code == httpx2.codes.OK:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(_RETRY_SECONDS)


async def grpc_hang(address: str, seconds: float) -> None:
    """Wait until the service at ``host:port`` has not responded for ``seconds``."""
    async with connect(address) as channel:
        await until_unresponsive(partial(grpc_responds, channel), _policy(seconds))


async def http_hang(url: str, seconds: float) -> None:
    """Wait until ``GET url`` has not been answered for ``seconds``."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        await until_unresponsive(partial(_http_responds, client, url), _policy(seconds))


def _policy(seconds: float) -> ProbePolicy:
    return ProbePolicy(seconds / _MAX_FAILURES, seconds / _MAX_FAILURES, _MAX_FAILURES)


async def _http_responds(client: httpx2.AsyncClient, url: str, seconds: float) -> bool:
    try:
        await client.get(url, timeout=seconds)
    except httpx2.TransportError:
        return False
    return True
