"""What an end has to say, gathered into frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from google.protobuf.message import Message

from svclib.errors import Overloaded

_FRAME_ENTRIES: Final = 1024
_FRAME_BYTES: Final = 4 * 1024 * 1024
FRAME_SECONDS: Final = 0.002
"""From one frame to the next at least: a frame costs the two ends 0.1 to 0.3 ms of CPU, however little is in it."""
_ENTRY_BYTES: Final = 32
"""What an entry counts beyond its message: about what it takes in memory."""


class Outbox:
    """Entries on their way out, gathered into frames.

    The first one after a silence goes out at once. What comes within ``FRAME_SECONDS`` of the last frame shares the
    next one, so that many requests and fast models cost few frames.

    A peer that does not take them, beyond ``max_bytes``, gets nothing any more: ``on_overflow`` is called, once.
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
        """When the next frame may go out, on the event loop's clock."""
        self._closed = False
        self._overflowed = False
        self.num_bytes = 0

    def add(self, request_id: int) -> Any:
        """A new entry for the caller to fill before the event loop runs on."""
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
        """Take the size of a large entry into account."""
        self._count(entry.ByteSize())

    def merge(self, request_id: int, message: Message) -> None:
        """Add a message, to the request's waiting entry if nothing came between."""
        entry = self._last.get(request_id)
        if entry is None or self._sizes[-1] >= _FRAME_BYTES:
            entry = self.add(request_id)
            if not self._overflowed:
                self._last[request_id] = entry
        target = getattr(entry, self._mergeable)
        target.MergeFrom(message)
        # An empty message sets no field by itself, yet it was sent.
        target.SetInParent()
        self._count(message.ByteSize())

    def close(self) -> None:
        """Let ``frames`` end once everything is written."""
        self._closed = True
        self._wakeup.set()

    async def frames(self) -> AsyncIterator[Any]:
        """The frames, as the transport asks for them. Raises ``Overloaded`` when it asked too slowly."""
        while True:
            while self._frames:
                if (seconds := self._seconds_until_due()) > 0:
                    await asyncio.sleep(seconds)
                    continue
                yield self._take()
            if self._overflowed:
                raise Overloaded(f"the peer reads too slowly: more than {self._max_bytes} bytes were waiting")
            if self._closed:
                return
            self._wakeup.clear()
            await self._wakeup.wait()

    def _seconds_until_due(self) -> float:
        """A full frame does not wait, nor do the last ones."""
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
