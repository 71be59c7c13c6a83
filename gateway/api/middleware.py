"""Middleware for every HTTP request, in pure ASGI: request id, record, log line, error body, body size limit."""

from __future__ import annotations

import re
import secrets
import time
from typing import Final

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.generation.record import RequestRecord
from gateway.http.errors import CLIENT_CLOSED, ClientGone, Problem
from gateway.metrics import GatewayMetrics
from svclib.errors import PayloadTooLarge, ServiceError, public

UNMATCHED: Final = "unmatched"
_PROBES: Final = frozenset({"/health", "/ready", "/metrics"})
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

log = structlog.get_logger(__name__)


class RequestContext:
    """Sets a request's id (``x-request-id`` if valid, else a new one) and record; logs and counts its end."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        record = RequestRecord(_request_id(headers), traceparent=_traceparent(headers))
        scope["state"]["record"] = record
        status = CLIENT_CLOSED

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", record.request_id.encode())]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=record.request_id):
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                record.finished_at = time.time()
                route = _route(scope)
                self._metrics.observe_request(record, route, status)
                log_line = log.debug if route in _PROBES else log.info
                log_line("request", method=scope["method"], route=route, status=status, **record.log_fields())


class ErrorBodies:
    """Answers exceptions with the OpenAI error body. Any but ``ServiceError`` is logged and hidden."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except ClientGone:
            scope["state"]["record"].error_code = "client_gone"
        except Exception as error:
            if not isinstance(error, ServiceError):
                log.exception("request failed")
            if started:
                raise
            problem = Problem.of(public(error))
            scope["state"]["record"].error_code = problem.code or problem.type
            await send({"type": "http.response.start", "status": problem.status, "headers": problem.headers})
            await send({"type": "http.response.body", "body": problem.body})


class BodyLimit:
    """Refuses bodies that are too large, by their content-length or while they arrive."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._check(int(Headers(scope=scope).get("content-length", "0")))
        received = 0

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            self._check(received)
            return message

        await self._app(scope, limited_receive, send)

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise PayloadTooLarge(f"the body must be at most {self._max_bytes} bytes")


def _traceparent(headers: Headers) -> str:
    """The client's ``traceparent`` header, if it is valid W3C Trace Context."""
    given = headers.get("traceparent", "")
    return given if _TRACEPARENT.fullmatch(given) else ""


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(16)}"


def _route(scope: Scope) -> str:
    """The template of the path, so that the label has few values."""
    route = scope.get("route")
    return UNMATCHED if route is None else str(route.path)
