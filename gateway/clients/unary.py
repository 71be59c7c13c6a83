"""Calls with one answer."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message

from svclib.status import from_rpc_error

INFO_SECONDS: Final = 5.0
"""Longest time for a service to describe itself."""

AnswerT = TypeVar("AnswerT", bound=Message)


async def answer(call: Awaitable[AnswerT], peer: str) -> AnswerT:
    """What the peer says. Raises the ``ServiceError`` that it or the connection gave."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, peer=peer) from None
