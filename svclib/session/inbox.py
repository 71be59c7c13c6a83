"""What an end was told about one request, until its reader takes it."""

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
    """How many bytes may wait in the inboxes of one session; whoever holds the most ends when it is used up."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._holders: set[Inbox[Any]] = set()
        self._watermark = Watermark(TRIM_BYTES)
        self.num_bytes = 0

    def take(self, inbox: Inbox[Any], count: int) -> None:
        """Count bytes that wait in an inbox."""
        self._holders.add(inbox)
        self.num_bytes += count
        self._watermark.note(self.num_bytes)
        inbox.num_bytes += count
        limits = self._limits
        if inbox.num_bytes > limits.waiting:
            inbox.overflow(f"more than {limits.waiting} bytes were waiting")
        elif self.num_bytes > limits.waiting_in_all:
            most = max(self._holders, key=lambda holder: holder.num_bytes)
            most.overflow(f"more than {limits.waiting_in_all} bytes were waiting, of all requests together")

    def give_back(self, inbox: Inbox[Any], count: int) -> None:
        """They wait no more."""
        self.num_bytes -= count
        inbox.num_bytes -= count
        if not inbox.num_bytes:
            self._holders.discard(inbox)
        self._watermark.note(self.num_bytes)


class Inbox(Generic[MessageT]):
    """Messages of one request that its reader has not taken yet, and how it ended.

    The first one is kept as it is, the others as they look on the wire, one behind the other, which is how protobuf
    merges: they take no more memory than they must, and joining them costs nothing. ``on_overflow`` is called when the
    reader is so slow that the allowance is used up: what waited is gone, and the request ends with ``Overloaded``.
    """

    def __init__(self, allowance: Allowance, on_overflow: Callable[[], None]) -> None:
        self._allowance = allowance
        self._on_overflow = on_overflow
        self._first: MessageT | None = None
        self._rest: deque[bytearray] = deque()
        self._class: type[MessageT]
        self._wakeup: asyncio.Future[None] | None = None
        self._on_news: Callable[[], None] | None = None
        self.num_bytes = 0
        """Of the messages behind the first."""
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
        """The last word; only the first one counts."""
        if not self.ended:
            self.ended, self.error = True, error
            self._wake()

    def overflow(self, why: str) -> None:
        """Too much waits: end with an error and without it, also when the last word was said."""
        self.drop()
        self.ended, self.error = True, Overloaded(f"read too slowly: {why}", retry_after=1.0)
        self._wake()
        self._on_overflow()

    def drop(self) -> None:
        """Let go of what waits: nobody will read it."""
        self._first = None
        self._rest.clear()
        self._allowance.give_back(self, self.num_bytes)

    async def get(self) -> MessageT:
        """The next message: what waits, or a portion of it. Raises ``StopAsyncIteration`` or the error after the last.

        Between two portions other tasks have their turn.
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

    def watch(self, on_news: Callable[[], None]) -> None:
        """Be told whenever something comes, the end included, and read with ``take``: a reader without a task."""
        self._on_news = on_news
        if self.ended or not self._is_empty:
            on_news()

    def take(self) -> MessageT | None:
        """What waits, or a portion of it; None while there is nothing. Raises the error of the end, after the last."""
        if not self._is_empty:
            return self._take()
        if self.error is not None:
            raise self.error
        return None

    @property
    def is_over(self) -> bool:
        """It has ended without an error, and everything was taken."""
        return self.ended and self.error is None and self._is_empty

    @property
    def has_more(self) -> bool:
        """Another portion waits already, or an error."""
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
            self._allowance.give_back(self, len(portion))
        return message

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
        if self._on_news is not None:
            self._on_news()
