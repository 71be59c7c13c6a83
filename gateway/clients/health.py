"""Whether a peer can be asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


async def watch_health(channel: grpc.aio.Channel) -> AsyncGenerator[bool, None]:
    """Whether the peer serves, now and at each change. Ends, or raises ``AioRpcError``, when the peer is lost."""
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
    try:
        async for answer in call:
            yield answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        call.cancel()
