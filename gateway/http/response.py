"""An answer as bytes: status line, headers and the framing of the body (RFC 9112, 6.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

from gateway.http.errors import Problem

_VERSION: Final = b"HTTP/1.1 "
"""The highest version that we support, whatever the client's (RFC 9110, 2.5)."""
_BAD_IN_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Framing(Enum):
    """What marks the end of a body."""

    NOTHING = auto()
    """There is no body."""
    LENGTH = auto()
    CHUNKED = auto()
    CONNECTION = auto()
    """The end of the connection; HTTP/1.0 has no chunks."""


class Response:
    """Serialises one answer."""

    def __init__(self, method: str, version: str, *, keep_alive: bool) -> None:
        self._method = method
        self._version = version
        self.keep_alive = keep_alive
        self.is_started = False
        self._framing = Framing.NOTHING
        self._left = 0
        self._num_probes = 0

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The head. Raises ``ValueError`` for a header value with control characters (response splitting)."""
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
        # A half-closed client may have been sent the first bytes already.
        return b"".join((_VERSION[self._num_probes :], *lines, b"\r\n"))

    def body(self, data: bytes, *, is_last: bool) -> bytes:
        """A framed piece of the body. Raises ``ValueError`` if the body does not match ``content-length``."""
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
            raise ValueError("the length of the body does not match content-length")
        return data

    def probe(self) -> bytes:
        """A byte of the answer that is known already, to be sent ahead; empty: there is none.

        The next byte of ``HTTP/1.1``, or a leading zero of the next chunk's size.
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
    """A whole error response that closes its connection."""
    response = Response("", "1.1", keep_alive=False)
    return response.start(problem.status, problem.headers) + response.body(problem.body, is_last=True)


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
