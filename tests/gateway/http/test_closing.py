"""Closing connections: readable refusals, keep-alive, HTTP/1.0, and pipelined requests."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from gateway.http import closing as closing_module
from tests.gateway.http.wire import answer_to, chat, chat_body, connect, opened, parse, read_all
from tests.gateway.running import Stack, scripted_stack, until
from tests.gateway.sse import collect

MIB = 2**20
CHAT = "/v1/chat/completions"


def ask_with_urllib(url: str, data: bytes, **options: Any) -> tuple[int, dict[str, Any]]:
    """urllib sends ``Connection: close`` and the whole body before it reads the answer."""
    request = urllib.request.Request(url, data=data, **options)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize("size", [9 * MIB, 64 * MIB])
@pytest.mark.parametrize(
    ("path", "content_type"), [(CHAT, "application/json"), (CHAT, "text/plain"), ("/nowhere", "x/y")]
)
def test_client_can_read_a_413(shared: Stack, size: int, path: str, content_type: str) -> None:
    status, body = ask_with_urllib(shared.url + path, b" " * size, headers={"content-type": content_type})
    assert status == 413
    assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "content_type", "method", "status"),
    [("/nowhere", "application/json", "POST", 404), (CHAT, "text/plain", "POST", 415),
     ("/health", "text/plain", "PUT", 405),
     ("/v1/models/none", "application/json", "GET", 404), (CHAT, "application/json", "POST", 400)],
)  # fmt: skip
@pytest.mark.parametrize("size", [100, 8 * MIB])
def test_client_can_read_other_refusals(
    shared: Stack, size: int, path: str, content_type: str, method: str, status: int
) -> None:
    headers = {"content-type": content_type}
    found, _ = ask_with_urllib(shared.url + path, b" " * size, headers=headers, method=method)
    assert found == status


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("size", [9 * MIB, 64 * MIB])
def test_http_client(shared: Stack, size: int, close: bool) -> None:
    host = shared.url.removeprefix("http://")
    with closing(http.client.HTTPConnection(host, timeout=60)) as client:
        client.request("POST", CHAT, b" " * size, {"connection": "close"} if close else {})
        answer = client.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]["type"]) == (413, "invalid_request_error")
        assert answer.will_close == close
        if not close:
            client.request("GET", "/health")
            assert client.getresponse().status == 200


def chunks(size: int) -> Iterator[bytes]:
    yield from (b" " * MIB for _ in range(size // MIB))


def test_http_client_with_chunks(shared: Stack) -> None:
    with closing(http.client.HTTPConnection(shared.url.removeprefix("http://"), timeout=60)) as client:
        client.request("POST", CHAT, chunks(64 * MIB), {"connection": "close"}, encode_chunked=True)
        assert client.getresponse().status == 413


def test_http_1_0_client_can_read_a_413(shared: Stack) -> None:
    data = chat(b" " * 9 * MIB, version="1.0")
    status, headers, body = answer_to(shared, *(data[start : start + MIB] for start in range(0, len(data), MIB)))
    assert (status, headers["connection"]) == (413, "close")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_connection_ends_after_a_refused_expect_continue(shared: Stack) -> None:
    """It may or may not send its body: so the connection ends, and a body is not taken for the next request."""
    head = chat(b"", "expect: 100-continue", length=9 * MIB)
    for body in (b"", b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"):
        status, headers, answer = answer_to(shared, head, body)
        assert (status, headers["connection"]) == (413, "close")
        assert b"alive" not in answer


async def test_lingering_close_ends_without_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_module, "LINGER_SECONDS", 0.1)
    async with scripted_stack() as stack, opened(stack) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert b"alive" in await asyncio.wait_for(reader.read(), 20)
        await until(lambda: not stack.http_server.server_state.connections)


async def test_lingering_close_ends_with_endless_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_module, "DISCARD_SECONDS", 0.3)
    async with scripted_stack() as stack, opened(stack) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        while stack.http_server.server_state.connections or not reader.at_eof():
            writer.write(b" ")
            await asyncio.sleep(0.01)
            with suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(reader.read(), 0.01)


# HTTP/1.0


def test_a_stream_over_http_1_0_ends_with_the_connection(shared: Stack) -> None:
    request = chat(chat_body(model="simulated", stream=True, max_tokens=5), version="1.0")
    status, headers, body = answer_to(shared, request)
    assert status == 200
    assert "transfer-encoding" not in headers
    assert headers["connection"] == "close"
    answer = collect(body.decode())
    assert answer.done
    assert answer.choices[0].content


def test_a_stream_over_http_1_0_that_asks_to_be_kept_ends_with_the_connection(shared: Stack) -> None:
    body = chat_body(model="simulated", stream=True, max_tokens=5)
    _, headers, answer = answer_to(shared, chat(body, "connection: keep-alive", version="1.0"))
    assert (headers["connection"], "transfer-encoding" in headers) == ("close", False)
    assert collect(answer.decode()).done


def test_http_1_0_keeps_a_connection_when_it_asks(shared: Stack) -> None:
    ask = b"GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    with closing(connect(shared)) as connection:
        for _ in range(3):
            connection.sendall(ask)
            received = b""
            while b'alive"}' not in received:
                received += connection.recv(2**16)
            assert parse(received)[1]["connection"] == "keep-alive"
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert parse(read_all(connection))[1]["connection"] == "close"


def test_http_1_0_gets_no_100_continue(shared: Stack) -> None:
    body = chat_body(model="simulated", max_tokens=1)
    assert answer_to(shared, chat(body, "expect: 100-continue", version="1.0"))[0] == 200


# Idle connections


async def test_keep_alive_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    async with scripted_stack(keep_alive_timeout=0.5) as stack, opened(stack) as (reader, writer):
        for _ in range(3):
            writer.write(ask)
            await reader.readuntil(b'alive"}')
            await asyncio.sleep(0.1)
        started = time.monotonic()
        assert await asyncio.wait_for(reader.read(), 20) == b""
        assert time.monotonic() - started > 0.2


async def test_blank_lines_do_not_keep_a_connection_alive() -> None:
    async with scripted_stack(keep_alive_timeout=0.3) as stack, opened(stack) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b'alive"}')
        end = asyncio.create_task(reader.read())
        while not end.done():
            writer.write(b"\r\n")
            await asyncio.sleep(0.01)
        with suppress(ConnectionError):
            assert await end == b""


def test_keep_alive_timeout_exceeds_that_of_common_proxies() -> None:
    """nginx keeps upstream connections for 60 s, and the proxy must be the one that closes first."""
    from gateway.config import Settings

    assert Settings(served_model_name="m").keep_alive_timeout > 60


# Several requests on one connection


def test_pipelined_requests_are_answered_in_order(shared: Stack) -> None:
    body = chat_body(model="simulated", max_tokens=1)
    big = chat_body(model="simulated", max_tokens=1, user="x" * 400, metadata={"k": "v" * 500}) + b" " * 200_000
    requests = [chat(body), b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", chat(big), chat(body, "connection: close")]
    with closing(connect(shared)) as connection:
        connection.sendall(b"".join(requests))
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200 OK") == 4
    assert received.index(b"chat.completion") < received.index(b"alive") < received.rindex(b"chat.completion")


def test_fault_after_a_request_keeps_its_answer(shared: Stack) -> None:
    body = chat_body(model="simulated", max_tokens=3)
    status, _, rest = answer_to(shared, chat(body) + b"no http\r\n\r\n")
    assert status == 200
    first, _, second = rest.partition(b"HTTP/1.1 400")
    assert json.loads(first)["object"] == "chat.completion"
    assert b"this is not HTTP/1.1" in second


def test_a_thousand_pipelined_requests(shared: Stack) -> None:
    with closing(connect(shared)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 999)
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert read_all(connection).count(b"alive") == 1000


def test_truncated_body(shared: Stack) -> None:
    with closing(connect(shared)) as connection:
        connection.sendall(chat(b"{", length=1000))
        connection.shutdown(socket.SHUT_WR)
        status, headers, body = parse(read_all(connection))
    assert (status, headers["connection"]) == (400, "close")
    assert "ended before" in json.loads(body)["error"]["message"]
