"""Middleware: request id, error body, log line, body size limit."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import structlog
from prometheus_client import CollectorRegistry
from starlette.types import Message, Receive, Scope, Send

from gateway.api.middleware import BodyLimit, ErrorBodies, RequestContext
from gateway.http.errors import CLIENT_CLOSED, ClientGone
from gateway.metrics import GatewayMetrics
from svclib.errors import Overloaded, PayloadTooLarge
from tests.gateway.running import Stack


@pytest.mark.parametrize("given", ["mine-1", "a" * 128, "A.b_c:d/e+f=g@h-1"])
def test_valid_request_id_is_returned(shared: Stack, given: str) -> None:
    assert httpx2.get(f"{shared.url}/health", headers={"x-request-id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a b", "a" * 129, "a\tb", "<script>", 'a"b', "a,b", "ü".encode()])
def test_invalid_request_id_is_replaced(shared: Stack, given: Any) -> None:
    answer = httpx2.get(f"{shared.url}/health", headers={"x-request-id": given})
    assert answer.headers["x-request-id"].startswith("req_")


def test_request_ids_differ(shared: Stack) -> None:
    assert len({httpx2.get(f"{shared.url}/health").headers["x-request-id"] for _ in range(5)}) == 5


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/chat/completions/", 404, "not_found"),
        ("GET", "/" + "x" * 5000, 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("PURGE", "/health", 405, "method_not_allowed"),
    ],
)
def test_wrong_routes(shared: Stack, method: str, path: str, status: int, code: str) -> None:
    answer = httpx2.request(method, f"{shared.url}{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    assert ("allow" in answer.headers) == (status == 405)
    assert len(answer.content) < 4096


class App:
    """An application that runs a function of the test, in all middleware."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.sent: list[Message] = []
        self.metrics = GatewayMetrics(CollectorRegistry(), "m")

    async def inner(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.run(receive, send)

    async def ask(self, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()) -> list[Message]:
        messages = iter([{"type": "http.request", "body": body}])

        async def receive() -> Message:
            return next(messages)

        async def send(message: Message) -> None:
            self.sent.append(message)

        stack = RequestContext(ErrorBodies(BodyLimit(self.inner, max_bytes=10)), self.metrics)
        scope = {"type": "http", "method": "GET", "path": "/", "headers": list(headers), "state": {}}
        await stack(scope, receive, send)
        return self.sent

    def count(self, status: int, code: str) -> float | None:
        labels = {"route": "unmatched", "status": str(status), "code": code, "model_name": ""}
        return self.metrics.registry.get_sample_value("pellucid_http_requests_total", labels)


def raising(error: BaseException) -> Any:
    async def run(receive: Receive, send: Send) -> None:
        raise error

    return run


async def reading(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def test_service_error_is_answered() -> None:
    app = App(raising(Overloaded("full", retry_after=2.0)))
    start, body = await app.ask()
    assert start["status"] == 503
    assert (b"retry-after", b"2") in start["headers"]
    assert b'"full"' in body["body"]
    assert app.count(503, "overloaded") == 1


async def test_other_errors_are_logged_and_hidden() -> None:
    app = App(raising(RuntimeError("secret of the house")))
    with structlog.testing.capture_logs() as lines:
        start, body = await app.ask()
    assert start["status"] == 500
    assert b"secret" not in body["body"]
    assert [line["event"] for line in lines] == ["request failed", "request"]
    assert lines[1]["status"] == 500


async def test_client_gone_is_not_answered() -> None:
    app = App(raising(ClientGone()))
    assert await app.ask() == []
    assert app.count(CLIENT_CLOSED, "client_gone") == 1


async def test_error_after_the_status_line_is_raised() -> None:
    async def run(receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("too late")

    app = App(run)
    with pytest.raises(RuntimeError, match="too late"):
        await app.ask()
    assert [message["type"] for message in app.sent] == ["http.response.start"]


async def test_bodies_at_the_limit_and_one_above() -> None:
    start, _ = await App(reading).ask(b"x" * 10)
    assert start["status"] == 200
    start, _ = await App(reading).ask(b"x" * 11)
    assert start["status"] == 413


async def test_declared_size_is_checked() -> None:
    start, _ = await App(reading).ask(headers=((b"content-length", b"10"),))
    assert start["status"] == 200
    app = App(raising(PayloadTooLarge("never reached")))
    start, body = await app.ask(headers=((b"content-length", b"11"),))
    assert start["status"] == 413
    assert b"never" not in body["body"]


async def test_the_log_line() -> None:
    with structlog.testing.capture_logs() as lines:
        await App(reading).ask(headers=((b"x-request-id", b"mine"),))
    (line,) = lines
    assert (line["event"], line["method"], line["route"], line["status"]) == ("request", "GET", "unmatched", 200)
    assert line["seconds"] >= 0
