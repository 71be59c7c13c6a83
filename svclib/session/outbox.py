"""What an end has to say, gathered into frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from google.protobuf.message import Message

_FRAME_ENTRIES: Final = 1024
_FRAME_BYTES: Final = 4 * 1024 * 1024


class Outbox:
    """Entries on their way out, gathered into frames."""

    def __init__(self, frame_class: type[Any], mergeable: str) -> None:
        self._frame_class = frame_class
        self._mergeable = mergeable
        self._frames: list[Any] = []
        self._bytes = 0
        self._last: dict[int, Any] = {}
        self._wakeup = asyncio.Event()
        self._closed = False

    def add(self, request_id: int) -> Any:
        """A new entry for the caller to fill before the event loop runs on."""
        if not self._frames or len(self._frames[-1].entries) >= _FRAME_ENTRIES or self._bytes >= _FRAME_BYTES:
            self._frames.append(self._frame_class())
            self._bytes = 0
            self._last.clear()
        entry = self._frames[-1].entries.add()
        entry.id = request_id
        self._last.pop(request_id, None)
        self._wakeup.set()
        return entry

    def count_bytes(self, entry: Message) -> None:
        """Take the size of a large entry into account when frames are cut."""
        self._bytes += entry.ByteSize()

    def merge(self, request_id: int, message: Message) -> None:
        """Add a message, to the request's waiting entry if nothing came between."""
        entry = self._last.get(request_id)
        if entry is None or self._bytes >= _FRAME_BYTES:
            entry = self.add(request_id)
            self._last[request_id] = entry
        self._bytes += message.ByteSize()
        target = getattr(entry, self._mergeable)
        target.MergeFrom(message)
        # An empty message sets no field by itself, yet it was sent.
        target.SetInParent()

    def close(self) -> None:
        """Let ``frames`` end once everything is written."""
        self._closed = True
        self._wakeup.set()

    async def frames(self) -> AsyncIterator[Any]:
        """The frames, as the transport asks for them."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if not self._frames:
                    self._last.clear()
                yield frame
            if self._closed:
                return
            self._wakeup.clear()
            await self._wakeup.wait()
