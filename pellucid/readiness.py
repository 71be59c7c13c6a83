"""When a freshly started service can do its work, and when it hangs: asked over the standard interfaces, as any
orchestrator would."""

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
_MAX_UNANSWERED: Final = 5


async def grpc_service(address: str) -> None:
    """Returns when ``host:port`` says SERVING over ``grpc.health.v1``; waits as long as that takes."""
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
    """Returns when ``GET url`` is answered with 200. HTTP has no way to be told, so this asks again and again."""
    async with httpx2.AsyncClient(trust_env=False, timeout=5.0) as client:
        while True:
            try:
                if (await client.get(url)).status_code == httpx2.codes.OK:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(_RETRY_SECONDS)


async def grpc_hang(address: str, seconds: float) -> None:
    """Returns when the service at ``host:port`` has answered nothing for so long."""
    async with connect(address) as channel:
        await until_unresponsive(partial(grpc_responds, channel), _patience(seconds))


async def http_hang(url: str, seconds: float) -> None:
    """Returns when ``GET url`` has not been answered for so long."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        await until_unresponsive(partial(_http_answers, client, url), _patience(seconds))


def _patience(seconds: float) -> ProbePolicy:
    return ProbePolicy(seconds / _MAX_UNANSWERED, seconds / _MAX_UNANSWERED, _MAX_UNANSWERED)


async def _http_answers(client: httpx2.AsyncClient, url: str, seconds: float) -> bool:
    try:
        await client.get(url, timeout=seconds)
    except httpx2.TransportError:
        return False
    return True
