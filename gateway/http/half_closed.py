"""A client that has ended its side of a connection: does it wait for its answer, or is it gone?

Both look the same to the server: a FIN. ``nc -N``, and every client that calls ``shutdown(SHUT_WR)``, still reads. The
system of a client that is gone answers the next byte with a reset. So one byte of the answer is sent ahead
(``Response.probe``), and the socket's error is read soon after. More bytes follow later, for clients that leave later.

There are few such bytes, and none in an HTTP/1.0 stream that has begun. So a client that leaves long after it ended its
side, or in such a stream, may be noticed only at the next write: an event, or a comment that keeps the stream alive.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

_FIRST_LOOK_SECONDS: Final = 0.005
_LONGEST_WAIT_SECONDS: Final = 1.0
_PROBE_FACTOR: Final = 4
"""Bytes are sent after 1, 4, 16, ... seconds."""


class HalfClosed:
    """Watches one such client, and aborts its connection when it turns out to be gone. ``probe`` sends a byte."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, probe: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._probe = probe
        self._ended_at = loop.time()
        self._next_probe = 1.0
        self._wait = _FIRST_LOOK_SECONDS
        probe()
        self._timer = loop.call_later(self._wait, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        if self._loop.time() - self._ended_at >= self._next_probe:
            self._next_probe *= _PROBE_FACTOR
            self._probe()
        self._wait = min(2 * self._wait, _LONGEST_WAIT_SECONDS)
        self._timer = self._loop.call_later(self._wait, self._look)
