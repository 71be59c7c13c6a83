"""HTTP/1.1 on one connection: bytes to requests, one answered after the other, and a close that lets clients read.

uvicorn's server accepts connections and makes one of these for each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import Scope
from uvicorn import Config
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from gateway.http.errors import Problem
from gateway.http.exchange import Exchange, Line
from gateway.http.half_closed import HalfClosed
from gateway.http.head import TOO_LARGE, Head, HeadReader, Refused, bad_request, check_framing
from gateway.http.pool import ConnectionPool
from gateway.http.response import refusal
from gateway.http.writer import Writer
from gateway.policy.limits import (
    BODY_BUFFER_BYTES,
    DISCARD_SECONDS,
    HEAD_SECONDS,
    LINGER_SECONDS,
    MAX_DISCARDED_BYTES,
    MAX_HEAD_BYTES,
)

_CUT_OFF: Final = bad_request("the connection ended before the body did")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """What operators decide of connections, in seconds."""

    keep_alive: float
    """Without a request, after the first one."""
    write_stall: float
    """Without the client reading a byte of what waits for it."""


class Connection(asyncio.Protocol):
    """Refuses heads beyond ``MAX_HEAD_BYTES``, and closes the connection of one that takes ``HEAD_SECONDS``.

    No upgrade is made: a request that offers one (Java's client does, to HTTP/2) is answered as if it had not. Its
    parser would leave out the body.

    A client gets to read the answer that ends its connection: closing a connection with unread input resets it, the
    answer included. So first only our side is ended, and what the client still sends is read and thrown away until it
    ends its own; up to a number of bytes, and for a while.
    """

    transport: asyncio.Transport
    _writer: Writer

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: ConnectionSettings,
        pool: ConnectionPool,
    ) -> None:
        self._app = config.loaded_app
        self._server_state = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._settings = settings
        self._pool = pool
        self._parser = _new_parser(self)
        self._head = HeadReader()
        self._is_in_head = True
        self._unfinished_bytes = 0
        """Of the head, while its end has not been seen."""
        self._has_seen_end = False
        """Of a message, in the bytes that came last."""
        self._exchanges: deque[Exchange] = deque()
        """Not answered yet; the first one is being answered."""
        self._reading: Exchange | None = None
        """Whose body has not come to its end; it may have been answered."""
        self._is_deaf = False
        """Whatever comes is thrown away."""
        self._refusal: Problem | None = None
        """To be said after the last answer."""
        self._has_ended = False
        self._half_closed: HalfClosed | None = None
        self._is_paused = False
        self._discarded_bytes = 0
        self._discard_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # never another
        self.transport = transport
        self._writer = Writer(transport, self._loop, self._settings.write_stall)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        self._client, self._server = get_remote_addr(transport), get_local_addr(transport)
        self._after(HEAD_SECONDS, self._close)
        self._pool.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server_state.connections.discard(self)
        self._pool.remove(self)
        self._stop_timer()
        self._writer.release()
        if self._half_closed is not None:
            self._half_closed.stop()
        for exchange in self._exchanges:
            exchange.disconnect()
        self._exchanges.clear()
        self._reading = None
        self._is_deaf = True

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            self._discard(len(data))
            return
        self._has_seen_end = False
        self._feed(data)
        # The parser keeps the beginning of an unfinished line to itself.
        if self._is_in_head and not self._is_deaf and not self._has_seen_end:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > MAX_HEAD_BYTES:
                self._refuse(TOO_LARGE)

    def eof_received(self) -> bool:
        """Whether our side stays open: for a client that has asked, and may still read."""
        self._has_ended = True
        if self._reading is not None and not self._reading.is_complete and not self._is_deaf:
            self._refuse(_CUT_OFF)
        if not self._exchanges:
            return False
        self._is_deaf = True
        for exchange in self._exchanges:
            exchange.end_connection()
        self._half_closed = HalfClosed(self.transport, self._loop, self._probe)
        return True

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    # What the server and the pool call.

    def shutdown(self) -> None:
        """End as soon as what was asked is answered."""
        for exchange in self._exchanges:
            exchange.end_connection()
        if not self._exchanges:
            self._close()

    def evict(self) -> None:
        self.transport.abort()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._head, self._is_in_head, self._unfinished_bytes = HeadReader(), True, 0
        self._after(HEAD_SECONDS, self._stop_listening)

    def on_url(self, url: bytes) -> None:
        self._head.add_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head.add_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_timer()
        if self._offers_upgrade():
            return
        head = self._head.finish(self._parser.get_method(), self._parser.get_http_version())
        self._begin(head)

    def on_body(self, body: bytes) -> None:
        if self._reading is None:
            return
        if self._reading.is_complete:
            self._discard(len(body))
        elif self._reading.feed(body) > BODY_BUFFER_BYTES:
            self._pause_reading()

    def on_message_complete(self) -> None:
        self._has_seen_end = True
        if self._reading is None:
            return
        exchange, self._reading = self._reading, None
        exchange.end_body()
        if exchange.is_complete and not self._is_deaf:
            self._wait()

    # Reading requests.

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            if self._offers_upgrade():
                self._read_without_upgrade(data[upgrade.args[0] :])
        except HttpParserError as error:
            self._refuse(_problem_of(error, self._head, self._parser.get_http_version()))

    def _offers_upgrade(self) -> bool:
        return self._parser.should_upgrade() and self._head.offers_upgrade

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Read a head again, as if it offered nothing, and then what came after it."""
        line = (self._parser.get_method(), self._head.url, self._parser.get_http_version().encode())
        headers = b"".join(b"%s: %s\r\n" % header for header in self._head.headers if header[0] != b"upgrade")
        self._parser = _new_parser(self)
        self._feed(b"%s %s HTTP/%s\r\n%s\r\n%s" % (*line, headers, rest))

    def _begin(self, head: Head) -> None:
        """A request has come; it is answered when those before it are."""
        line = Line(self._writer, self._resume_reading, self._on_answered, self._server_state.default_headers)
        exchange = Exchange(line, self._scope(head), head, keep_alive=self._parser.should_keep_alive())
        self._exchanges.append(exchange)
        self._reading, self._discarded_bytes = exchange, 0
        self._pool.note_busy(self)
        if len(self._exchanges) == 1:
            self._answer(exchange)
        else:
            self._pause_reading()

    def _scope(self, head: Head) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "method": head.method,
            "root_path": "",
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "headers": head.headers,
            "state": self._app_state.copy(),
        }

    def _pause_reading(self) -> None:
        if not self._is_paused and not self._has_ended:
            self._is_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        """Unless requests wait that came behind the one that wants to read: its own body has come, then."""
        if self._is_paused and len(self._exchanges) <= 1:
            self._is_paused = False
            self.transport.resume_reading()

    # Answering them.

    def _answer(self, exchange: Exchange) -> None:
        task = self._loop.create_task(exchange.run(self._app))
        task.add_done_callback(self._server_state.tasks.discard)
        self._server_state.tasks.add(task)

    def _on_answered(self) -> None:
        exchange = self._exchanges.popleft()
        self._server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if not exchange.keep_alive:
            self._exchanges.clear()
            self._linger()
        elif self._exchanges:
            self._answer(self._exchanges[0])
        elif self._is_deaf:
            self._say_refusal()
        else:
            self._wait()
        self._resume_reading()

    def _wait(self) -> None:
        """For the rest of a body that was answered before its end, or for the next request."""
        self._pool.note_idle(self)
        if self._reading is None:
            self._after(self._settings.keep_alive, self._close)
        else:
            self._after(DISCARD_SECONDS, self._close)

    def _probe(self) -> None:
        if self._exchanges:
            self._exchanges[0].probe()

    # Refusing them.

    def _refuse(self, problem: Problem) -> None:
        """Read nothing any more, and say why when all that came before is answered."""
        self._is_deaf = True
        self._refusal = problem
        faulty, self._reading = self._reading, None
        if faulty is not None and not faulty.is_complete:
            self._take_over(faulty)
        if not self._exchanges:
            self._say_refusal()

    def _take_over(self, faulty: Exchange) -> None:
        """Whoever waits for a body that is at fault waits in vain. Its answer, if it has begun, is the one it gets."""
        if not faulty.is_started:
            faulty.disconnect()
            self._exchanges.remove(faulty)

    def _say_refusal(self) -> None:
        if self._refusal is not None:
            self._writer.write(refusal(self._refusal))
        self._linger()

    def _stop_listening(self) -> None:
        """A head does not come to its end."""
        self._is_deaf = True
        if not self._exchanges:
            self._close()

    # Ending the connection.

    def _linger(self) -> None:
        """End our side, and give the client time to read and to end its own."""
        self._is_deaf = True
        self._writer.watch()
        if self._has_ended or not self.transport.can_write_eof():
            self._close()
            return
        self.transport.write_eof()
        self._pool.note_idle(self)
        self._discard_until = self._loop.time() + DISCARD_SECONDS
        self._after(LINGER_SECONDS, self._close)

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > MAX_DISCARDED_BYTES:
            self._close()
        elif self._discard_until:
            self._after(min(LINGER_SECONDS, max(0.0, self._discard_until - self._loop.time())), self._close)

    def _close(self) -> None:
        """Close when all is written."""
        self._writer.end()

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, act)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _new_parser(connection: Connection) -> HttpRequestParser:
    parser = HttpRequestParser(connection)
    # A request that was sent behind one with ``connection: close`` must not spoil the answer to that.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _problem_of(error: HttpParserError, head: HeadReader, version: str) -> Problem:
    """What is wrong: our own refusal, what we would say of the head so far, or what the parser says."""
    refused = error.__context__
    if isinstance(refused, Refused):
        return refused.problem
    try:
        check_framing(head.headers, version)
    except Refused as ours:
        return ours.problem
    return bad_request(f"this is not HTTP/1.1: {error}")
