"""Entries that one end of a session sends, batched into frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from google.protobuf.message import Message

from svclib.errors import Overloaded

_FRAME_ENTRIES: Final = 1024
_FRAME_BYTES: Final = 4 * 1024 * 1024
FRAME_SECONDS: Final = 0.002
"""Minimum time between frames: a frame costs the two ends 0.1 to 0.3 ms of CPU, however few entries it has."""
_ENTRY_BYTES: Final = 32
"""Counted for an entry on top of its message: about its overhead in memory."""


class Outbox:
    """Unsent entries, batched into frames.

    After an idle period the first entry goes out at once. Entries added within ``FRAME_SECONDS`` of the last frame
    share the next one, so that many requests and fast models cost few frames.

    When the peer reads so slowly that more than ``max_bytes`` are unsent, ``on_overflow`` is called once, and nothing
    more is sent.
    """

    def __init__(
        self,
        frame_class: type[Any],
        mergeable: str,
        *,
        max_bytes: int,
        on_overflow: Callable[[], object],
    ) -> None:
        self._frame_class = frame_class
        self._mergeable = mergeable
        self._on_overflow = on_overflow
        self._max_bytes = max_bytes
        self._frames: list[Any] = []
        self._sizes: list[int] = []
        """Bytes of each frame."""
        self._last: dict[int, Any] = {}
        self._wakeup = asyncio.Event()
        self._due_at = 0.0
        """Earliest time of the next frame, on the event loop's clock."""
        self._closed = False
        self._overflowed = False
        self.num_bytes = 0

    def add(self, request_id: int) -> Any:
        """A new entry, which the caller fills before it yields to the event loop."""
        if self._overflowed:
            return self._frame_class().entries.add()
        if not self._frames or len(self._frames[-1].entries) >= _FRAME_ENTRIES or self._sizes[-1] >= _FRAME_BYTES:
            self._frames.append(self._frame_class())
            self._sizes.append(0)
            self._last.clear()
        entry = self._frames[-1].entries.add()
        entry.id = request_id
        self._last.pop(request_id, None)
        self._wakeup.set()
        self._count(_ENTRY_BYTES)
        return entry

    def count_bytes(self, entry: Message) -> None:
        """Count the size of an entry that was filled after ``add``."""
        self._count(entry.ByteSize())

    def merge(self, request_id: int, message: Message) -> None:
        """Add a message; merged into the request's unsent entry unless another entry of the request came after it."""
        entry = self._last.get(request_id)
        if entry is None or self._sizes[-1] >= _FRAME_BYTES:
            entry = self.add(request_id)
            if not self._overflowed:
                self._last[request_id] = entry
        target = getattr(entry, self._mergeable)
        target.MergeFrom(message)
        # An empty message sets no field, but must arrive.
        target.SetInParent()
        self._count(message.ByteSize())

    def close(self) -> None:
        """Let ``frames`` end once everything is written."""
        self._closed = True
        self._wakeup.set()

    async def frames(self) -> AsyncIterator[Any]:
        """The frames, for the transport to send. Raises ``Overloaded`` after an overflow."""
        while True:
            while self._frames:
                if (seconds := self._seconds_until_due()) > 0:
                    await asyncio.sleep(seconds)
                    continue
                yield self._take()
            if self._overflowed:
                raise Overloaded(f"the peer reads too slowly: more than {self._max_bytes} bytes unsent")
            if self._closed:
                return
            self._wakeup.clear()
            await self._wakeup.wait()

    def _seconds_until_due(self) -> float:
        """0 for a full frame and for the last ones."""
        if self._closed or len(self._frames) > 1:
            return 0.0
        return self._due_at - asyncio.get_running_loop().time()

    def _take(self) -> Any:
        self._due_at = asyncio.get_running_loop().time() + FRAME_SECONDS
        self.num_bytes -= self._sizes.pop(0)
        if len(self._frames) == 1:
            self._last.clear()
        return self._frames.pop(0)

    def _count(self, num_bytes: int) -> None:
        if self._overflowed:
            return
        self._sizes[-1] += num_bytes
        self.num_bytes += num_bytes
        if self.num_bytes > self._max_bytes:
            self._overflow()

    def _overflow(self) -> None:
        self._overflowed, self.num_bytes = True, 0
        self._frames.clear()
        self._sizes.clear()
        self._last.clear()
        self._wakeup.set()
        self._on_overflow()
