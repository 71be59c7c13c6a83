"""``POST /v1/chat/completions``: hop 1 and hop 12 of a request."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Final
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Response
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from gateway.api.chat.stream import HEADERS, ChunkWriter, Identity, error_event
from gateway.api.chat.whole import Assembly
from gateway.gateway import Gateway
from gateway.generation.model import check_name
from gateway.generation.output import Event
from gateway.generation.record import RequestRecord
from gateway.generation.request import ChatRequest, StreamOptions
from gateway.http.bodies import client_address
from gateway.http.errors import ClientGone, Problem
from gateway.http.receiving import check_json_headers, while_connected
from gateway.policy.admission import Permit
from gateway.policy.interrupt import Interrupt
from gateway.policy.limits import MAX_IGNORED_NAME_CHARS, MAX_IGNORED_NAMES
from svclib.errors import DeadlineExceeded, ServiceError, public

_LAST_WORD_SECONDS: Final = 1.0
"""How long a client that does not read may delay the end of a failed stream."""

log = structlog.get_logger(__name__)


def chat_routes(gateway: Gateway) -> APIRouter:
    """The routes that answer conversations."""
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def create_chat_completion() -> Response:
        return ChatAnswer(gateway)

    return router


class ChatAnswer(Response):
    """The answer to a conversation, in one piece or as a stream, as the body asks for."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ``ServiceError`` and ``ClientGone`` before the status line; after it the stream tells the error."""
        await _Exchange(self._gateway, scope, receive, send).run()


class _Exchange:
    """One request from its first byte to the last of its answer. Whatever it holds, it holds inside of ``run``."""

    def __init__(self, gateway: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
        self._gateway = gateway
        self._headers = Headers(scope=scope)
        self._address = client_address(scope)
        self._receive = receive
        self._send = send
        self._record: RequestRecord = scope["state"]["record"]
        self._is_streaming = False

    async def run(self) -> None:
        try:
            body = await self._read_body()
            async with Interrupt() as interrupt:
                with self._gateway.admission.enter(interrupt) as permit, self._gateway.bodies.holding(len(body)):
                    await self._serve(body, interrupt, permit)
        except Exception as error:
            if not self._is_streaming or isinstance(error, ClientGone):
                raise
            await self._send_last_word(error)

    async def _read_body(self) -> bytes:
        """No permit is held meanwhile: it may take as long as the client likes, up to the limits of ``Bodies``."""
        check_json_headers(self._headers)
        self._gateway.admission.check_open()
        return await self._gateway.bodies.read(self._receive, self._address)

    async def _serve(self, body: bytes, interrupt: Interrupt, permit: Permit) -> None:
        settings = self._gateway.settings
        interrupt.after(
            max(0.0, self._record.request_received_at + settings.request_timeout - time.time()),
            DeadlineExceeded(f"the request took more than {settings.request_timeout:g} s"),
        )
        request = await self._read_request(body)
        permit.grow(request.n)
        async with while_connected(self._receive, interrupt):
            events = self._gateway.pipeline.answer(
                request,
                self._record,
                until=self._record.request_received_at + settings.request_timeout,
                give_up=interrupt,
                ping_seconds=settings.sse_ping_seconds if request.stream else None,
            )
            if request.stream is None:
                await self._send_whole(request, events)
            else:
                await self._send_stream(request, request.stream, events)

    async def _read_request(self, body: bytes) -> ChatRequest:
        request = await self._gateway.reader.read(body)
        self._record.model_name, self._record.ignored = request.model, request.ignored
        check_name(request.model, self._gateway.settings.model_names)
        self._record.model_name = self._gateway.settings.served_model_name
        return request

    async def _send_whole(self, request: ChatRequest, events: AsyncGenerator[list[Event], None]) -> None:
        assembly = Assembly(request.n, with_logprobs=request.sampling.logprobs is not None)
        async with aclosing(events):
            async for batch in events:
                assembly.add(batch)
        body = assembly.body(self._identity(request), self._record)
        await self._start([(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body})

    async def _send_stream(
        self, request: ChatRequest, options: StreamOptions, events: AsyncGenerator[list[Event], None]
    ) -> None:
        async with aclosing(events):
            first = await anext(events)
            writer = ChunkWriter(self._identity(request), options, self._record)
            self._is_streaming = True
            await self._start(HEADERS)
            await self._send_more(writer.opening(request.n) + writer.events(first))
            async for batch in events:
                await self._send_more(writer.events(batch))
        # Nothing is waited for after this, so that the end of the answer is not taken for the client's leaving.
        await self._send({"type": "http.response.body", "body": writer.closing()})

    async def _start(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        headers = [*headers, *_ignored_header(self._record.ignored)]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _send_more(self, data: bytes) -> None:
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _send_last_word(self, error: Exception) -> None:
        if not isinstance(error, ServiceError):
            log.exception("stream failed")
        problem = Problem.of(public(error))
        self._record.error_code = problem.code or problem.type
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await self._send({"type": "http.response.body", "body": error_event(problem)})

    def _identity(self, request: ChatRequest) -> Identity:
        return Identity(
            id=f"chatcmpl-{secrets.token_hex(12)}",
            created=int(self._record.request_received_at),
            model=request.model,
            system_fingerprint=self._record.fingerprint,
        )


def _ignored_header(names: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Tells the client which of its fields nobody knows."""
    if not names:
        return []
    shown = [quote(name[:MAX_IGNORED_NAME_CHARS], safe="[]._-") for name in names[:MAX_IGNORED_NAMES]]
    more = [f"and {len(names) - len(shown)} more"] if len(names) > len(shown) else []
    return [(b"x-pellucid-ignored", ", ".join(shown + more).encode())]
