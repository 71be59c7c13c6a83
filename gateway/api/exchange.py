"""A request to generate and its answer over HTTP, for any endpoint: hop 1 and hop 12.

It handles admission, disconnects, bodies, deadlines and errors; the endpoint reads the document and writes the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import Final
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.api.answer import AnswerWriter, ApiRequest, ReadRequest
from gateway.gateway import Gateway
from gateway.generation.events import Event
from gateway.generation.record import RequestRecord
from gateway.http.bodies import client_address
from gateway.http.disconnect import while_connected
from gateway.http.errors import ClientGone, Problem
from gateway.http.json_body import check_json_headers
from gateway.policy.admission import Permit
from gateway.policy.interrupt import Interrupt
from gateway.policy.limits import MAX_IGNORED_NAME_CHARS, MAX_IGNORED_NAMES
from svclib.errors import DeadlineExceeded, ServiceError, public

_ERROR_EVENT_SECONDS: Final = 1.0
"""How long a client that does not read may delay the end of a failed stream."""

log = structlog.get_logger(__name__)


class GenerationEndpoint:
    """An ASGI application for one endpoint: ``read`` reads its requests; answers are whole or streamed."""

    def __init__(self, gateway: Gateway, read: ReadRequest) -> None:
        self._gateway = gateway
        self._read = partial(read, reject_unknown=gateway.settings.unknown_fields == "reject")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ``ServiceError`` and ``ClientGone`` before the status line; after it sends an error event."""
        exchange = _Exchange(self._gateway, scope, receive, send)
        try:
            body = await exchange.read_body()
            async with Interrupt() as interrupt:
                with self._gateway.admission.enter(interrupt) as permit, self._gateway.bodies.holding(len(body)):
                    exchange.set_deadline(interrupt)
                    request = await self._gateway.reader.read(body, self._read)
                    await exchange.answer(request, interrupt, permit)
        except Exception as error:
            if exchange.stream is None or isinstance(error, ClientGone):
                raise
            await exchange.send_error(error, exchange.stream)


def generation_route(path: str, gateway: Gateway, read: ReadRequest) -> Route:
    """``POST path``, for an endpoint that generates."""
    return Route(path, GenerationEndpoint(gateway, read), methods=["POST"])


class _Exchange:
    """The client's side of one request."""

    def __init__(self, gateway: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
        self._gateway = gateway
        self._scope = scope
        self._receive = receive
        self._send = send
        self._record: RequestRecord = scope["state"]["record"]
        self._until = self._record.request_received_at + gateway.settings.request_timeout
        self.stream: AnswerWriter | None = None
        """Once the status line of a stream is sent."""

    async def read_body(self) -> bytes:
        """Holds no permit. The limits on time and rate are those of ``Bodies``."""
        check_json_headers(Headers(scope=self._scope))
        self._gateway.admission.check_open()
        return await self._gateway.bodies.read(self._receive, client_address(self._scope))

    def set_deadline(self, interrupt: Interrupt) -> None:
        seconds = self._gateway.settings.request_timeout
        error = DeadlineExceeded(f"the request took more than {seconds:g} s")
        interrupt.after(max(0.0, self._until - time.time()), error)

    async def answer(self, request: ApiRequest, interrupt: Interrupt, permit: Permit) -> None:
        """Generate, and write the answer."""
        generation, settings = request.generation, self._gateway.settings
        self._record.model_name, self._record.ignored = generation.model, tuple(request.ignored)
        self._gateway.registry.deployment(generation.model)
        self._record.model_name = settings.served_model_name
        permit.grow(generation.n)
        async with while_connected(self._receive, interrupt):
            events = self._gateway.pipeline.answer(
                generation,
                self._record,
                until=self._until,
                abort=interrupt,
                ping_seconds=settings.sse_ping_seconds if request.is_stream else None,
            )
            async with aclosing(events):
                await (self._send_stream if request.is_stream else self._send_whole)(request, events)

    async def _send_whole(self, request: ApiRequest, events: AsyncGenerator[list[Event], None]) -> None:
        first = await anext(events)
        writer = request.writer(self._record)
        writer.events(first)
        async for batch in events:
            writer.events(batch)
        body = writer.closing()
        await self._start([*writer.headers, (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body})

    async def _send_stream(self, request: ApiRequest, events: AsyncGenerator[list[Event], None]) -> None:
        first = await anext(events)
        self.stream = writer = request.writer(self._record)
        await self._start(writer.headers)
        await self._send_more(writer.opening() + writer.events(first))
        async for batch in events:
            await self._send_more(writer.events(batch))
        await events.aclose()
        # Nothing is awaited after this, so that the end of the answer is not taken for a disconnect.
        await self._send({"type": "http.response.body", "body": writer.closing()})

    async def _start(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        headers = [*headers, *_ignored_header(self._record.ignored)]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _send_more(self, data: bytes) -> None:
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def send_error(self, error: Exception, writer: AnswerWriter) -> None:
        """End a started stream with an error event."""
        if not isinstance(error, ServiceError):
            log.exception("stream failed")
        problem = Problem.of(public(error))
        self._record.error_code = problem.code or problem.type
        with suppress(TimeoutError):
            async with asyncio.timeout(_ERROR_EVENT_SECONDS):
                await self._send({"type": "http.response.body", "body": writer.error(problem)})


def _ignored_header(names: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """The header that names the client's unknown fields."""
    if not names:
        return []
    shown = [quote(name[:MAX_IGNORED_NAME_CHARS], safe="[]._-") for name in names[:MAX_IGNORED_NAMES]]
    more = [f"and {len(names) - len(shown)} more"] if len(names) > len(shown) else []
    return [(b"x-pellucid-ignored", ", ".join(shown + more).encode())]
