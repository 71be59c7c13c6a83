"""Closing a connection so that the client can read the last answer.

Closing a connection with unread input resets it, and the client loses the answer. So only our side is ended first, and
what the client still sends is read and discarded until it ends its own side; up to a number of bytes, and for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.http.writer import Writer
from gateway.policy.limits import DISCARD_SECONDS, LINGER_SECONDS, MAX_DISCARDED_BYTES


class Timer:
    """One deadline at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float, act: Callable[[], None]) -> None:
        """Replaces the deadline that was set before."""
        self.stop()
        self._handle = self._loop.call_later(seconds, act)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class LingeringClose:
    """The discarded input of one connection, and its lingering close."""

    def __init__(
        self, transport: asyncio.Transport, writer: Writer, loop: asyncio.AbstractEventLoop, timer: Timer
    ) -> None:
        self._transport = transport
        self._writer = writer
        self._loop = loop
        self._timer = timer
        self._discarded_bytes = 0
        self._discard_until = 0.0
        """Time of the event loop; 0.0 while our side is open."""

    def start(self) -> None:
        """End our side. The client has some time to read and to end its own."""
        self._transport.write_eof()
        self._discard_until = self._loop.time() + DISCARD_SECONDS
        self._timer.start(LINGER_SECONDS, self.close)

    def discard(self, size: int) -> None:
        """Count input that was thrown away. Beyond ``MAX_DISCARDED_BYTES`` the connection is closed."""
        self._discarded_bytes += size
        if self._discarded_bytes > MAX_DISCARDED_BYTES:
            self.close()
        elif self._discard_until:
            self._timer.start(min(LINGER_SECONDS, max(0.0, self._discard_until - self._loop.time())), self.close)

    def reset(self) -> None:
        """A request begins: its body is counted from 0."""
        self._discarded_bytes = 0

    def close(self) -> None:
        """Close once everything is written."""
        self._writer.end()
