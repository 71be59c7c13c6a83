"""Reading bodies, with limits on time, rate, number and bytes, so that slow senders do not affect others.

A body that is being read holds no permit. At a limit the new body is never refused, because slow and fast clients may
share an address behind a proxy: the oldest body of the address with the most is ended with a 408. A client that sends
without pauses is never the oldest for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Receive, Scope

from gateway.http.errors import ClientGone
from gateway.policy.interrupt import Interrupt
from gateway.policy.limits import MAX_HELD_BODY_BYTES, MAX_PARTIAL_BODY_BYTES, TRIM_BODY_BYTES
from svclib.errors import Overloaded, RequestTimeout, ServiceError
from svclib.memory import Watermark

_CROWDED: Final = "the body arrived too slowly while too many other bodies were being read"


def client_address(scope: Scope) -> str:
    """The address that a body is counted for: the peer of the connection, which may be a proxy."""
    client = scope.get("client")
    return str(client[0]) if client else ""


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """Limits on the time of one body, and on all bodies being read."""

    seconds: float
    grace_seconds: float
    min_bytes_per_second: int
    """Measured over each interval of ``grace_seconds``."""
    max_readers: int
    max_readers_per_address: int
    max_bytes: int = MAX_PARTIAL_BODY_BYTES
    max_held_bytes: int = MAX_HELD_BODY_BYTES


@dataclass(eq=False, slots=True)
class _Reader:
    """One body that is being read."""

    address: str
    interrupt: Interrupt
    size: int = 0
    pieces: list[bytes] = field(default_factory=list)
    counted_size: int = 0
    """Size at the start of the interval."""
    timer: asyncio.TimerHandle | None = None


class Bodies:
    """Reads the bodies of all requests, and counts the bytes that requests in flight hold."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._limits = limits
        self._readers: dict[str, dict[_Reader, None]] = {}
        """By address, the oldest first."""
        self._num_readers = 0
        self._partial_bytes = 0
        self._held_bytes = 0
        self._watermark = Watermark(TRIM_BODY_BYTES)

    @property
    def num_readers(self) -> int:
        return self._num_readers

    async def read(self, receive: Receive, address: str) -> bytes:
        """A whole body. Raises ``RequestTimeout``, ``ClientGone``, and what ``receive`` raises."""
        async with Interrupt() as interrupt:
            interrupt.after(
                self._limits.seconds, RequestTimeout(f"the body was not received within {self._limits.seconds:g} s")
            )
            with self._reading(address, interrupt) as reader:
                while await self._read_more(reader, receive):
                    self._bound_bytes(reader)
                return b"".join(reader.pieces)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count a body that has been read for as long as its request is in flight. Raises ``Overloaded``."""
        if self._held_bytes + size > self._limits.max_held_bytes:
            raise Overloaded("too many large requests in flight", retry_after=1.0)
        self._held_bytes += size
        self._watermark.note(self._partial_bytes + self._held_bytes)
        try:
            yield
        finally:
            self._held_bytes -= size
            self._watermark.note(self._partial_bytes + self._held_bytes)

    def end_all(self, error: ServiceError) -> None:
        """End all bodies that are being read with an error."""
        for group in list(self._readers.values()):
            for reader in list(group):
                reader.interrupt(error)

    def check_integrity(self) -> None:
        readers = [reader for group in self._readers.values() for reader in group]
        assert all(self._readers.values())
        assert self._num_readers == len(readers)
        assert self._partial_bytes == sum(reader.size for reader in readers)

    @contextmanager
    def _reading(self, address: str, interrupt: Interrupt) -> Iterator[_Reader]:
        reader = _Reader(address, interrupt)
        self._readers.setdefault(address, {})[reader] = None
        self._num_readers += 1
        self._watch_rate(reader)
        self._make_room(address)
        try:
            yield reader
        finally:
            assert reader.timer is not None
            reader.timer.cancel()
            self._release(reader)
            # The exception that ends a reader would keep the pieces alive until a full garbage collection.
            reader.pieces.clear()

    async def _read_more(self, reader: _Reader, receive: Receive) -> bool:
        """Whether more of the body is to come."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        reader.pieces.append(piece)
        reader.size += len(piece)
        if reader in self._readers.get(reader.address, ()):
            self._partial_bytes += len(piece)
            self._watermark.note(self._partial_bytes + self._held_bytes)
        return bool(message.get("more_body", False))

    def _bound_bytes(self, current: _Reader) -> None:
        while self._partial_bytes > self._limits.max_bytes:
            oldest = self._release_oldest(max(self._readers, key=self._bytes_of))
            if oldest is current:
                raise RequestTimeout(_CROWDED)
            oldest.interrupt(RequestTimeout(_CROWDED))

    def _make_room(self, address: str) -> None:
        if len(self._readers[address]) > self._limits.max_readers_per_address:
            self._release_oldest(address).interrupt(RequestTimeout(_CROWDED))
        if self._num_readers > self._limits.max_readers:
            most = max(self._readers, key=lambda each: len(self._readers[each]))
            self._release_oldest(most).interrupt(RequestTimeout(_CROWDED))

    def _bytes_of(self, address: str) -> int:
        return sum(reader.size for reader in self._readers[address])

    def _release_oldest(self, address: str) -> _Reader:
        """Stop counting the oldest body of an address. The caller must end it."""
        reader = next(iter(self._readers[address]))
        self._release(reader)
        return reader

    def _release(self, reader: _Reader) -> None:
        group = self._readers.get(reader.address, {})
        if reader not in group:
            return
        del group[reader]
        if not group:
            del self._readers[reader.address]
        self._num_readers -= 1
        self._partial_bytes -= reader.size
        self._watermark.note(self._partial_bytes + self._held_bytes)

    def _watch_rate(self, reader: _Reader) -> None:
        reader.counted_size = reader.size
        seconds = self._limits.grace_seconds
        reader.timer = asyncio.get_running_loop().call_later(seconds, self._check_rate, reader)

    def _check_rate(self, reader: _Reader) -> None:
        least = self._limits.min_bytes_per_second * self._limits.grace_seconds
        if reader.size - reader.counted_size < least:
            reader.interrupt(
                RequestTimeout(f"the body arrived more slowly than {self._limits.min_bytes_per_second} bytes/s")
            )
        else:
            self._watch_rate(reader)
