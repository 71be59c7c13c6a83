"""Messages of a request that have arrived and that its reader has not taken yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from svclib.errors import Overloaded, ServiceError
from svclib.memory import Watermark
from svclib.session.limits import PORTION_BYTES, TRIM_BYTES, SessionLimits

MessageT = TypeVar("MessageT", bound=Message)


class Allowance:
    """The byte limit on the inboxes of one session together. When it is exceeded, the largest inbox overflows."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._holders: set[Inbox[Any]] = set()
        self._watermark = Watermark(TRIM_BYTES)
        self.num_bytes = 0

    def take(self, inbox: Inbox[Any], count: int) -> None:
        """Count bytes that were added to an inbox."""
        self._holders.add(inbox)
        self.num_bytes += count
        self._watermark.note(self.num_bytes)
        inbox.num_bytes += count
        limits = self._limits
        if inbox.num_bytes > limits.waiting:
            inbox.overflow(f"more than {limits.waiting} bytes waiting")
        elif self.num_bytes > limits.waiting_in_all:
            largest = max(self._holders, key=lambda holder: holder.num_bytes)
            largest.overflow(f"more than {limits.waiting_in_all} bytes waiting over all requests of the session")

    def release(self, inbox: Inbox[Any], count: int) -> None:
        """Count bytes that were removed from an inbox."""
        self.num_bytes -= count
        inbox.num_bytes -= count
        if not inbox.num_bytes:
            self._holders.discard(inbox)
        self._watermark.note(self.num_bytes)


class Inbox(Generic[MessageT]):
    """Unread messages of one request, and how the request ended.

    The first message is kept as an object, the later ones serialised and concatenated, which is how protobuf merges:
    that takes the least memory, and merging them costs nothing. When the reader is so slow that the allowance is
    exceeded, the unread messages are dropped, the request ends with ``Overloaded``, and ``on_overflow`` is called.
    """

    def __init__(self, allowance: Allowance, on_overflow: Callable[[], None]) -> None:
        self._allowance = allowance
        self._on_overflow = on_overflow
        self._first: MessageT | None = None
        self._rest: deque[bytearray] = deque()
        self._class: type[MessageT]
        self._wakeup: asyncio.Future[None] | None = None
        self._on_update: Callable[[], None] | None = None
        self.num_bytes = 0
        """Of the messages after the first."""
        self.ended = False
        self.error: ServiceError | None = None

    def put(self, message: MessageT) -> None:
        if self.ended:
            return
        if self._is_empty:
            self._first = message
        else:
            self._class = type(message)
            self._append(message.SerializeToString())
        self._wake()

    def end(self, error: ServiceError | None = None) -> None:
        """End the request; only the first call has an effect."""
        if not self.ended:
            self.ended, self.error = True, error
            self._wake()

    def overflow(self, why: str) -> None:
        """Drop the unread messages and end the request with an error, even if it had ended without one."""
        self.drop()
        self.ended, self.error = True, Overloaded(f"read too slowly: {why}", retry_after=1.0)
        self._wake()
        self._on_overflow()

    def drop(self) -> None:
        """Discard the unread messages: they will not be read."""
        self._first = None
        self._rest.clear()
        self._allowance.release(self, self.num_bytes)

    async def get(self) -> MessageT:
        """The unread messages, merged, or a portion of them. After the last one it raises ``StopAsyncIteration`` or the
        request's error.

        Yields to the event loop between portions.
        """
        if len(self._rest) > 1:
            await asyncio.sleep(0)
        while self._is_empty:
            if self.ended:
                if self.error is not None:
                    raise self.error
                raise StopAsyncIteration
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        return self._take()

    def watch(self, on_update: Callable[[], None]) -> None:
        """Call back whenever a message or the end arrives. For readers without a task, which read with ``take``."""
        self._on_update = on_update
        if self.ended or not self._is_empty:
            on_update()

    def take(self) -> MessageT | None:
        """The unread messages, merged, or a portion of them; None if there are none.

        Raises the request's error after the last message.
        """
        if not self._is_empty:
            return self._take()
        if self.error is not None:
            raise self.error
        return None

    @property
    def is_over(self) -> bool:
        """The request has ended without an error, and every message was taken."""
        return self.ended and self.error is None and self._is_empty

    @property
    def has_more(self) -> bool:
        """Another portion is left, or an error."""
        return bool(self._rest) or self.error is not None

    @property
    def _is_empty(self) -> bool:
        return self._first is None and not self._rest

    def _append(self, data: bytes) -> None:
        if not self._rest or len(self._rest[-1]) >= PORTION_BYTES:
            self._rest.append(bytearray())
        self._rest[-1] += data
        self._allowance.take(self, len(data))

    def _take(self) -> MessageT:
        message = self._first if self._first is not None else self._class()
        self._first = None
        if self._rest:
            portion = self._rest.popleft()
            message.MergeFromString(bytes(portion))
            self._allowance.release(self, len(portion))
        return message

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
        if self._on_update is not None:
            self._on_update()
