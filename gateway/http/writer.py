"""Writing to a connection: limits on the unsent bytes, and on the time that a client reads nothing."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios

import structlog

from gateway.policy.limits import WRITE_BUFFER_BYTES

log = structlog.get_logger(__name__)


class Writer:
    """Writes to a transport, and aborts the connection when its client stops reading.

    The transport calls ``pause`` when more than ``WRITE_BUFFER_BYTES`` are unsent, and ``resume`` when few are. If the
    client reads nothing for ``stall_seconds`` in between, the connection is aborted as if the client had disconnected.
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
        """Returns when few bytes are unsent, or the connection is lost."""
        await self._may_write.wait()

    def pause(self) -> None:
        self._may_write.clear()
        self.watch()

    def resume(self) -> None:
        self._may_write.set()
        self._stop()

    def watch(self) -> None:
        """From now on the unsent bytes must decrease. Nothing more should be written meanwhile."""
        if self._timer is None and self.transport.get_write_buffer_size():
            self._start_check()

    def end(self) -> None:
        """Close the connection once everything is written."""
        self.watch()
        self.transport.close()

    def release(self) -> None:
        """The connection is lost: end the waits in ``drain``."""
        self.resume()

    def _start_check(self) -> None:
        self._last_size = self._unread()
        self._timer = self._loop.call_later(self._stall_seconds, self._check)

    def _check(self) -> None:
        self._timer = None
        size = self._unread()
        if self.transport.get_write_buffer_size() == 0:
            return
        if size < self._last_size:
            self._start_check()
        else:
            log.warning("client stopped reading; connection closed", seconds=self._stall_seconds, unread_bytes=size)
            self.transport.abort()

    def _unread(self) -> int:
        """Bytes that the client's system has not acknowledged: in our buffer and, if known, in the kernel."""
        return self.transport.get_write_buffer_size() + _kernel_bytes(self.transport)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _kernel_bytes(transport: asyncio.Transport) -> int:
    """Sent but not acknowledged, and unsent bytes (``SIOCOUTQ`` of tcp(7)); 0 where sockets do not support it."""
    try:
        fd = transport.get_extra_info("socket").fileno()
        answer: bytes = fcntl.ioctl(fd, termios.TIOCOUTQ, struct.pack("i", 0))
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])
