"""How the gateway notices that a client has disconnected.

A connection that is reset or closed reaches the application as ``http.disconnect`` (``while_connected``).

A FIN alone is ambiguous. ``nc -N``, and every client that calls ``shutdown(SHUT_WR)``, sends one and still reads; a
client that is gone sends one too. The system of a client that is gone answers the next byte with a reset. So one byte
of the answer is sent ahead (``Response.probe``), and the socket's error is read soon after (``HalfClosed``). More bytes
follow later, for clients that leave later.

There are few such bytes, and none in an HTTP/1.0 stream that has begun. So a client that leaves long after its FIN, or
in such a stream, may be noticed only at the next write: an event, or a comment that keeps the stream alive.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from starlette.types import Receive

from gateway.http.errors import ClientGone
from gateway.policy.interrupt import Interrupt

_FIRST_LOOK_SECONDS: Final = 0.005
_LONGEST_WAIT_SECONDS: Final = 1.0
_PROBE_FACTOR: Final = 4
"""Bytes are sent after 1, 4, 16, ... seconds."""


@asynccontextmanager
async def while_connected(receive: Receive, interrupt: Interrupt) -> AsyncIterator[None]:
    """Interrupt the block with ``ClientGone`` when the client disconnects. Enter it once the body has been read."""
    watch = asyncio.create_task(_wait_for_disconnect(receive, interrupt))
    try:
        yield
    finally:
        watch.cancel()


async def _wait_for_disconnect(receive: Receive, interrupt: Interrupt) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    interrupt(ClientGone())


class HalfClosed:
    """Watches one client that has sent a FIN, and aborts its connection once it is gone. ``probe`` sends a byte."""

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
