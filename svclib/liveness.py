"""Whether a service that has a connection still answers on it.

A service whose event loop does not turn keeps its connections: the kernel takes bytes, gRPC's own threads answer pings,
and a health stream says nothing because nothing changes. So it must be asked, with a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


@dataclass(frozen=True, slots=True)
class Patience:
    """When silence is taken for a hang. Times are in seconds."""

    interval: float
    """Between an answer and the next question."""
    answer_seconds: float
    """Until a question counts as unanswered."""
    max_unanswered: int
    """In a row. More than one, because an asker that was itself held up finds its question's time over before it has
    read the answer."""

    @property
    def longest(self) -> float:
        """From the last sign of life until a hang is noticed."""
        return self.interval + self.max_unanswered * self.answer_seconds


async def until_silent(ask: Callable[[float], Awaitable[bool]], patience: Patience) -> None:
    """Ask again and again; return when there was no answer. ``ask`` says whether there was one within its seconds.

    Who says no sooner, because there is no connection, is not asked again before they are over.
    """
    clock = asyncio.get_running_loop().time
    num_unanswered = 0
    while num_unanswered < patience.max_unanswered:
        if not num_unanswered:
            await asyncio.sleep(patience.interval)
        asked_at = clock()
        if await ask(patience.answer_seconds):
            num_unanswered = 0
        else:
            num_unanswered += 1
            await asyncio.sleep(max(0.0, asked_at + patience.answer_seconds - clock()))


async def grpc_answers(channel: grpc.aio.Channel, seconds: float) -> bool:
    """Whether ``grpc.health.v1`` answers, whatever it says."""
    try:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=seconds)
    except grpc.aio.AioRpcError:
        return False
    return True
