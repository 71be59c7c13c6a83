"""What an end was told about one request, until its reader takes it."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from google.protobuf.message import Message

from svclib.errors import ServiceError

MessageT = TypeVar("MessageT", bound=Message)


class Inbox(Generic[MessageT]):
    """Messages of one request that its reader has not taken yet, merged into one, and how it ended."""

    def __init__(self) -> None:
        self._waiting: MessageT | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self.ended = False
        self.error: ServiceError | None = None

    def put(self, message: MessageT) -> None:
        if self.ended:
            return
        if self._waiting is None:
            self._waiting = message
        else:
            self._waiting.MergeFrom(message)
        self._wake()

    def end(self, error: ServiceError | None = None) -> None:
        """The last word; only the first one counts."""
        if not self.ended:
            self.ended, self.error = True, error
            self._wake()

    async def get(self) -> MessageT:
        """The next message. Raises ``StopAsyncIteration`` or the error after the last one."""
        while self._waiting is None:
            if self.ended:
                if self.error is not None:
                    raise self.error
                raise StopAsyncIteration
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        message, self._waiting = self._waiting, None
        return message

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
