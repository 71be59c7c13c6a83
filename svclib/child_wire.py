"""Messages between a process and its children, over a socket pair.

A message is its length as four bytes, big-endian, and that many bytes. An answer begins with one byte more:
``ANSWERED``, ``LAST`` or ``FAILED``.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from typing import Final

ANSWERED: Final = b"\0"
FAILED: Final = b"\1"
"""The answer is the name of the exception, and the child ends."""
LAST: Final = b"\2"
"""The answer of a child that ends after it."""

_LENGTH: Final = struct.Struct(">I")


def send_message(end: socket.socket, message: bytes) -> None:
    """Raises ``OSError`` when the other end is closed, and ``TimeoutError`` after the socket's timeout."""
    end.sendall(_LENGTH.pack(len(message)) + message)


def send_answer(end: socket.socket, kind: bytes, answer: bytes) -> None:
    """Does nothing when the other end is closed."""
    with suppress(OSError):
        end.sendall(kind + _LENGTH.pack(len(answer)) + answer)


def receive_message(end: socket.socket, deadline: float | None = None) -> bytes:
    """``deadline`` is in seconds of ``time.monotonic``. Raises as ``receive_answer`` does."""
    (length,) = _LENGTH.unpack(_receive_exactly(end, _LENGTH.size, deadline))
    return _receive_exactly(end, length, deadline)


def receive_answer(end: socket.socket, deadline: float) -> tuple[bytes, bytes]:
    """The kind and the answer. Raises ``TimeoutError``, and ``OSError`` when the other end is closed."""
    kind = _receive_exactly(end, 1, deadline)
    return kind, receive_message(end, deadline)


def _receive_exactly(end: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray(size)
    received = 0
    with memoryview(data) as view:
        while received < size:
            if deadline is not None:
                end.settimeout(max(1e-3, deadline - time.monotonic()))
            if not (count := end.recv_into(view[received:])):
                raise ConnectionResetError
            received += count
    return bytes(data)
