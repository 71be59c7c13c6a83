"""What is written to a connection: little of it waits in memory, and not for ever."""

from __future__ import annotations

import asyncio

import structlog

from gateway.limits import WRITE_BUFFER_BYTES

log = structlog.get_logger(__name__)


class Writer:
    """Writes to a transport, and gives the connection up when its client stops reading.

    The transport calls ``pause`` when more than ``WRITE_BUFFER_BYTES`` wait, and ``resume`` when few do. In between not
    one byte may have to wait for ``stall_seconds``: then the connection is aborted, as if the client had left.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, stall_seconds: float) -> None:
        self.transport = transport
        self._loop = loop
        self._stall_seconds = stall_seconds
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._timer: asyncio.TimerHandle | None = None
        self._last_size = 0
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def write(self, data: bytes) -> None:
        if data:
            self.transport.write(data)

    async def drain(self) -> None:
        """Returns when little waits, or the connection is lost."""
        await self._may_write.wait()

    def pause(self) -> None:
        self._may_write.clear()
        self.watch()

    def resume(self) -> None:
        self._may_write.set()
        self._stop()

    def watch(self) -> None:
        """From now on what waits must become less. Nothing more should be written meanwhile."""
        if self._timer is None and self.transport.get_write_buffer_size():
            self._look_again()

    def end(self) -> None:
        """Close the connection when all is written."""
        self.watch()
        self.transport.close()

    def release(self) -> None:
        """The connection is lost: nobody waits any more."""
        self.resume()

    def _look_again(self) -> None:
        self._last_size = self.transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._stall_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        size = self.transport.get_write_buffer_size()
        if 0 < size < self._last_size:
            self._look_again()
        elif size:
            log.warning("client stopped reading; connection closed", seconds=self._stall_seconds, unread_bytes=size)
            self.transport.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
