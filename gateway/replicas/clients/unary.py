"""Unary gRPC calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from svclib.errors import PeerLost
from svclib.status import from_rpc_error

INFO_SECONDS: Final = 5.0
"""Deadline for a service's description."""
LOADS_SECONDS: Final = 0.5
"""Deadline for an engine's load; a scrape of ``/metrics`` waits for it."""

AnswerT = TypeVar("AnswerT", bound=Message)


async def answer(call: Awaitable[AnswerT], peer: str) -> AnswerT:
    """The peer's response. Raises the ``ServiceError`` of the peer or of the connection."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, peer=peer) from None


class UnaryCalls:
    """The calls of one client to ``peer``, which can be aborted together."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._running: set[grpc.aio.UnaryUnaryCall[Any, Any]] = set()

    async def answer(self, call: grpc.aio.UnaryUnaryCall[Any, AnswerT]) -> AnswerT:
        """The peer's response. Raises the ``ServiceError`` of the peer or the connection, ``PeerLost`` if aborted."""
        self._running.add(call)
        try:
            return await answer(call, self._peer)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call in self._running or (task is not None and task.cancelling()):
                raise
            raise PeerLost(f"lost the connection to the {self._peer}", retry_after=1.0) from None
        finally:
            self._running.discard(call)

    def abort_all(self) -> None:
        """End all calls in flight with ``PeerLost``."""
        running, self._running = self._running, set()
        for call in running:
            call.cancel()
