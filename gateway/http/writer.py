"""What is written to a connection: little of it waits in memory, and not for ever."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios

import structlog

from gateway.policy.limits import WRITE_BUFFER_BYTES

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
        self._last_size = self._unread()
        self._timer = self._loop.call_later(self._stall_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        size = self._unread()
        if self.transport.get_write_buffer_size() == 0:
            return
        if size < self._last_size:
            self._look_again()
        else:
            log.warning("client stopped reading; connection closed", seconds=self._stall_seconds, unread_bytes=size)
            self.transport.abort()

    def _unread(self) -> int:
        """Bytes that the client's system has not taken, here and, where it can be asked, in our own system."""
        return self.transport.get_write_buffer_size() + _bytes_in_system(self.transport)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _bytes_in_system(transport: asyncio.Transport) -> int:
    """What is sent and not acknowledged, and what is not sent (``SIOCOUTQ`` of tcp(7)); 0 where sockets do not tell."""
    try:
        fd = transport.get_extra_info("socket").fileno()
        answer: bytes = fcntl.ioctl(fd, termios.TIOCOUTQ, struct.pack("i", 0))
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])
