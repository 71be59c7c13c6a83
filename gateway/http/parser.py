"""Bytes of one connection to requests: heads, bodies and their ends, by httptools.

It refuses heads beyond ``MAX_HEAD_BYTES`` and anything but HTTP/1.0 and HTTP/1.1. Answers are not its concern.
"""

from __future__ import annotations

from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from gateway.http.errors import Problem
from gateway.http.head import TOO_LARGE, Head, HeadReader, Refused, bad_request, check_framing
from gateway.policy.limits import MAX_HEAD_BYTES


class RequestHandler(Protocol):
    """Called by a parser, in the order of the bytes."""

    def on_request_start(self) -> None:
        """The first byte of a request was read. May be called again for the same request."""

    def on_head(self, head: Head, *, keep_alive: bool) -> None:
        """A whole head was read. ``keep_alive``: the client lets the connection stay open."""

    def on_body(self, body: bytes) -> None: ...

    def on_request_end(self) -> None:
        """The last byte of a request was read. May come without a head."""


class RequestParser:
    """Parses the requests of one connection.

    No upgrade is made: a request that offers one (Java's client does, to HTTP/2) is read as if it had not. The parser
    of httptools would leave out its body.
    """

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._parser = self._new_parser()
        self._head = HeadReader()
        self._is_in_head = True
        self._unfinished_bytes = 0
        """Size of the head so far, while its end has not been read."""
        self._has_seen_end = False
        """The last bytes held the end of a request."""

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. Raises ``Refused``; after that the parser cannot be used."""
        self._has_seen_end = False
        self._feed(data)
        # httptools keeps the start of an unfinished line to itself, so HeadReader has not counted it.
        if self._is_in_head and not self._has_seen_end:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > MAX_HEAD_BYTES:
                raise Refused(TOO_LARGE)

    # Called by httptools.

    def on_message_begin(self) -> None:
        self._head, self._is_in_head, self._unfinished_bytes = HeadReader(), True, 0
        self._handler.on_request_start()

    def on_url(self, url: bytes) -> None:
        self._head.add_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head.add_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if self._offers_upgrade():
            return
        head = self._head.finish(self._parser.get_method(), self._parser.get_http_version())
        self._handler.on_head(head, keep_alive=self._parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        self._handler.on_body(body)

    def on_message_complete(self) -> None:
        self._has_seen_end = True
        self._handler.on_request_end()

    def _feed(self, data: bytes) -> None:
        rest: bytes | None = None
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except HttpParserError as error:
            raise Refused(self._problem_of(error)) from None
        # Not inside the handler, where the context of a further error would be HttpParserUpgrade.
        if rest is not None and self._offers_upgrade():
            self._read_without_upgrade(rest)

    def _offers_upgrade(self) -> bool:
        return self._parser.should_upgrade() and self._head.offers_upgrade

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Parse a head again without its offer of an upgrade, and then the bytes after it."""
        line = (self._parser.get_method(), self._head.url, self._parser.get_http_version().encode())
        headers = b"".join(b"%s: %s\r\n" % header for header in self._head.headers if header[0] != b"upgrade")
        self._parser = self._new_parser()
        self._feed(b"%s %s HTTP/%s\r\n%s\r\n%s" % (*line, headers, rest))

    def _new_parser(self) -> HttpRequestParser:
        parser = HttpRequestParser(self)
        # A request that was sent after one with ``connection: close`` must not spoil the answer to that one.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _problem_of(self, error: HttpParserError) -> Problem:
        """Our own refusal, a fault in the framing of the head so far, or the error of httptools."""
        refused = error.__context__
        if isinstance(refused, Refused):
            return refused.problem
        try:
            check_framing(self._head.headers, self._parser.get_http_version())
        except Refused as ours:
            return ours.problem
        return bad_request(f"this is not HTTP/1.1: {error}")
