"""HTTP/1.1 on one connection: uvicorn's protocol, with limits on heads and with errors that clients can parse.

uvicorn with httptools takes heads of any size and answers plain text to what it cannot parse.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.errors import Problem
from gateway.limits import HEAD_SECONDS, LINGER_SECONDS, MAX_DISCARDED_BYTES, MAX_HEAD_BYTES

_TOO_LARGE: Final = Problem.of_status(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
_NOT_HTTP: Final = Problem(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")


class HeadTooLarge(Exception):
    """Ends the parsing of a head."""


class LimitedProtocol(HttpToolsProtocol):
    """Refuses heads beyond ``MAX_HEAD_BYTES``, and closes the connection of one that takes ``HEAD_SECONDS``.

    No upgrade is made: a request that offers one (Java's client does, to HTTP/2) is answered as if it had not. Its
    parser would leave out the body.

    A refused client gets to read why: what it still sends is read and thrown away for a while, because closing a
    connection with unread input resets it, the answer included. uvicorn does the same with the rest of a refused body.
    """

    _in_head = True
    _head_bytes = 0
    """Of the head, as far as it has been parsed."""
    _unfinished_bytes = 0
    """Of the head, while its end has not been seen."""
    _is_refused = False
    _discarded_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._close_after(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._discard(data)
            return
        self._feed(data)
        # The parser keeps the beginning of an unfinished line to itself.
        if self._in_head and not self._is_refused:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > MAX_HEAD_BYTES:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes, self._unfinished_bytes = True, 0, 0
        self._close_after(HEAD_SECONDS)

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        if not self._offers_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._offers_upgrade():
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._discard(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's text is not for clients
        self._refuse(_TOO_LARGE if self._head_bytes > MAX_HEAD_BYTES else _NOT_HTTP)

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            if self._offers_upgrade():
                self._read_without_upgrade(data[upgrade.args[0] :])
        except HttpParserError as error:
            self.send_400_response(str(error))

    def _offers_upgrade(self) -> bool:
        return self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers)

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Read a head again, as if it offered nothing, and then what came after it."""
        line = (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = b"".join(b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade")
        self.parser = HttpRequestParser(self)
        self._feed(b"%s %s HTTP/%s\r\n%s\r\n%s" % (*line, headers, rest))

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge

    def _refuse(self, problem: Problem) -> None:
        self._is_refused = True
        if self.cycle is not None and not self.cycle.response_complete and not self._take_over():
            self.transport.close()
            return
        headers = b"".join(b"%s: %s\r\n" % header for header in (*problem.headers, (b"connection", b"close")))
        self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[problem.status], headers, problem.body))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._close_after(LINGER_SECONDS)

    def _take_over(self) -> bool:
        """Answer in the application's place, if it still waits for the body that is at fault and its turn has come."""
        if self.pipeline or self.cycle.response_started or not self.cycle.more_body:
            return False
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        return True

    def _discard(self, data: bytes) -> None:
        self._discarded_bytes += len(data)
        if self._discarded_bytes > MAX_DISCARDED_BYTES:
            self.transport.close()

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
