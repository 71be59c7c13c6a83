"""An answer as bytes: its status line and headers, and how the end of its body can be told (RFC 9112, 6.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

from gateway.http.errors import Problem

_VERSION: Final = b"HTTP/1.1 "
"""The highest version we speak, whatever the client's (RFC 9110, 2.5)."""
_BAD_IN_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Framing(Enum):
    """What ends a body."""

    NOTHING = auto()
    """There is none."""
    LENGTH = auto()
    CHUNKED = auto()
    CONNECTION = auto()
    """Its end; HTTP/1.0 has no chunks."""


class Response:
    """Turns the parts of one answer into bytes."""

    def __init__(self, method: str, version: str, *, keep_alive: bool) -> None:
        self._method = method
        self._version = version
        self.keep_alive = keep_alive
        self.is_started = False
        self._framing = Framing.NOTHING
        self._left = 0
        self._num_probes = 0

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The head. Raises ``ValueError`` for a header that would be read as several."""
        self.is_started = True
        lines = [b"%d %s\r\n" % (status, _phrase(status))]
        length: int | None = None
        for name, value in headers:
            if _BAD_IN_VALUE.search(value):
                raise ValueError(f"the value of {name!r} has control characters")
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                self.keep_alive = self.keep_alive and value.lower() != b"close"
                continue
            lines.append(b"%s: %s\r\n" % (name, value))
        self._frame(status, length)
        lines += self._connection_lines()
        # A client that ended its side was sent the beginning of this already.
        return b"".join((_VERSION[self._num_probes :], *lines, b"\r\n"))

    def body(self, data: bytes, *, is_last: bool) -> bytes:
        """A piece of the body, framed. Raises ``ValueError`` when it is not of the length that was promised."""
        match self._framing:
            case Framing.NOTHING:
                return b""
            case Framing.CONNECTION:
                return data
            case Framing.CHUNKED:
                chunk = b"%x\r\n%s\r\n" % (len(data), data) if data else b""
                return chunk + b"0\r\n\r\n" if is_last else chunk
        self._left -= len(data)
        if self._left < 0 or (is_last and self._left):
            raise ValueError("the body does not have the length that was promised")
        return data

    def probe(self) -> bytes:
        """A byte that the answer has in any case, to be sent ahead. Empty where there is none.

        It is the next one of ``HTTP/1.1``, or a leading zero of the next chunk's size.
        """
        if not self.is_started:
            byte = _VERSION[self._num_probes : self._num_probes + 1]
            self._num_probes += len(byte)
            return byte
        return b"0" if self._framing is Framing.CHUNKED else b""

    def _frame(self, status: int, length: int | None) -> None:
        if self._method == "HEAD" or status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            self._framing = Framing.NOTHING
        elif length is not None:
            self._framing, self._left = Framing.LENGTH, length
        elif self._version == "1.0":
            self._framing, self.keep_alive = Framing.CONNECTION, False
        else:
            self._framing = Framing.CHUNKED

    def _connection_lines(self) -> list[bytes]:
        lines = [b"transfer-encoding: chunked\r\n"] if self._framing is Framing.CHUNKED else []
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        elif self._version == "1.0":
            lines.append(b"connection: keep-alive\r\n")
        return lines


def refusal(problem: Problem) -> bytes:
    """A whole answer that ends its connection."""
    response = Response("", "1.1", keep_alive=False)
    return response.start(problem.status, problem.headers) + response.body(problem.body, is_last=True)


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
