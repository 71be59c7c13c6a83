"""HTTP/1.1 on one connection: requests are answered one after the other, in their order.

uvicorn's server accepts connections and makes one of these for each. ``parser.py`` turns bytes into requests,
``exchange.py`` is one of them and its answer, ``closing.py`` ends the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from uvicorn import Config
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from gateway.http.closing import LingeringClose, Timer
from gateway.http.disconnect import HalfClosed
from gateway.http.errors import Problem
from gateway.http.exchange import ConnectionHooks, Exchange, scope_of
from gateway.http.head import Head, Refused, bad_request
from gateway.http.parser import RequestParser
from gateway.http.pool import ConnectionPool
from gateway.http.response import refusal
from gateway.http.writer import Writer
from gateway.policy.limits import BODY_BUFFER_BYTES, DISCARD_SECONDS, HEAD_SECONDS

_CUT_OFF: Final = bad_request("the connection ended before the body did")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Timeouts of connections that operators set, in seconds."""

    keep_alive: float
    """Without a request, after the first one."""
    write_stall: float
    """Without the client reading a byte of what waits for it."""


class Connection(asyncio.Protocol):
    """The connection of one client. A head that takes more than ``HEAD_SECONDS`` ends it."""

    transport: asyncio.Transport
    _writer: Writer
    _closing: LingeringClose

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
        self._parser = RequestParser(self)
        self._timer = Timer(self._loop)
        self._exchanges: deque[Exchange] = deque()
        """Not answered yet; the first one is being answered."""
        self._reading: Exchange | None = None
        """The exchange whose body is incomplete; it may have been answered."""
        self._discards_input = False
        self._refusal: Problem | None = None
        """Sent after the last answer."""
        self._has_ended = False
        """The client has ended its side."""
        self._half_closed: HalfClosed | None = None
        self._is_paused = False

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # never another
        self.transport = transport
        self._writer = Writer(transport, self._loop, self._settings.write_stall)
        self._closing = LingeringClose(transport, self._writer, self._loop, self._timer)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        self._client, self._server = get_remote_addr(transport), get_local_addr(transport)
        self._timer.start(HEAD_SECONDS, self._closing.close)
        self._pool.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server_state.connections.discard(self)
        self._pool.remove(self)
        self._timer.stop()
        self._writer.release()
        if self._half_closed is not None:
            self._half_closed.stop()
        for exchange in self._exchanges:
            exchange.disconnect()
        self._exchanges.clear()
        self._reading = None
        self._discards_input = True

    def data_received(self, data: bytes) -> None:
        if self._discards_input:
            self._closing.discard(len(data))
            return
        try:
            self._parser.feed(data)
        except Refused as refused:
            self._refuse(refused.problem)

    def eof_received(self) -> bool:
        """Whether our side stays open: for a client that waits for an answer and may still read it."""
        self._has_ended = True
        if self._reading is not None and not self._reading.is_complete and not self._discards_input:
            self._refuse(_CUT_OFF)
        if not self._exchanges:
            return False
        self._discards_input = True
        for exchange in self._exchanges:
            exchange.end_connection()
        self._half_closed = HalfClosed(self.transport, self._loop, self._probe)
        return True

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    # Called by the server and the pool.

    def shutdown(self) -> None:
        """End as soon as the requests so far are answered."""
        for exchange in self._exchanges:
            exchange.end_connection()
        if not self._exchanges:
            self._closing.close()

    def evict(self) -> None:
        self.transport.abort()

    # Called by the parser.

    def on_request_start(self) -> None:
        self._timer.start(HEAD_SECONDS, self._on_head_timeout)

    def on_head(self, head: Head, *, keep_alive: bool) -> None:
        """A request is answered once those before it are."""
        self._timer.stop()
        hooks = ConnectionHooks(
            self._writer, self._resume_reading, self._on_answered, self._server_state.default_headers
        )
        scope = scope_of(head, server=self._server, client=self._client, state=self._app_state.copy())
        exchange = Exchange(hooks, scope, head, keep_alive=keep_alive)
        self._exchanges.append(exchange)
        self._reading = exchange
        self._closing.reset()
        self._pool.note_busy(self)
        if len(self._exchanges) == 1:
            self._answer(exchange)
        else:
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        if self._reading is None:
            return
        if self._reading.is_complete:
            self._closing.discard(len(body))
        elif self._reading.feed(body) > BODY_BUFFER_BYTES:
            self._pause_reading()

    def on_request_end(self) -> None:
        if self._reading is None:
            return
        exchange, self._reading = self._reading, None
        exchange.end_body()
        if exchange.is_complete and not self._discards_input:
            self._become_idle()

    # Reading.

    def _pause_reading(self) -> None:
        if not self._is_paused and not self._has_ended:
            self._is_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        """Has no effect while later requests wait: the body of the first one is complete then."""
        if self._is_paused and len(self._exchanges) <= 1:
            self._is_paused = False
            self.transport.resume_reading()

    def _on_head_timeout(self) -> None:
        self._discards_input = True
        if not self._exchanges:
            self._closing.close()

    # Answering.

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
        elif self._discards_input:
            self._send_refusal()
        else:
            self._become_idle()
        self._resume_reading()

    def _become_idle(self) -> None:
        """Wait for the next request, or for the rest of a body that was answered before its end."""
        self._pool.note_idle(self)
        self._timer.start(self._settings.keep_alive if self._reading is None else DISCARD_SECONDS, self._closing.close)

    def _probe(self) -> None:
        if self._exchanges:
            self._exchanges[0].probe()

    # Refusing.

    def _refuse(self, problem: Problem) -> None:
        """Read no further request, and send the refusal once every request before it is answered."""
        self._discards_input = True
        self._refusal = problem
        faulty, self._reading = self._reading, None
        # The application must not wait for the rest of a faulty body. An answer that has started is kept.
        if faulty is not None and not faulty.is_complete and not faulty.is_started:
            faulty.disconnect()
            self._exchanges.remove(faulty)
        if not self._exchanges:
            self._send_refusal()

    def _send_refusal(self) -> None:
        if self._refusal is not None:
            self._writer.write(refusal(self._refusal))
        self._linger()

    # Ending the connection.

    def _linger(self) -> None:
        self._discards_input = True
        self._writer.watch()
        if self._has_ended or not self.transport.can_write_eof():
            self._closing.close()
            return
        self._pool.note_idle(self)
        self._closing.start()
