"""Bytes on a connection: heads that are too large, too slow or malformed; refusals that clients can read."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing, suppress

import httpx2
import pytest

from gateway.http import closing as closing_module
from gateway.http import connection as connection_module
from gateway.policy.limits import MAX_HEAD_BYTES
from tests.gateway.http.wire import answer_to, connect
from tests.gateway.running import HI, MODEL, Stack, scripted_stack, until


def alive(stack: Stack) -> None:
    assert httpx2.get(f"{stack.url}/health").status_code == 200


START = b"GET /health HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        [START, b"x: " + b"a" * 1_000_000 + b"\r\n\r\n"],
        [START, b"x: " + b"a" * 1_000_000],
        [START + b"a" * 1_000_000],
        [START, *[b"x%d: aaaaaaaaaaaaaaaaaaaa\r\n" % number for number in range(5000)], b"\r\n"],
        [START, *[b"x: " + b"a" * 1000] * 100],
        [b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n"],
        [b"GET /" + b"a" * 100_000],
        [b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncookie: " + b"a" * 200_000 + b"\r\n\r\n{}"],
    ],
    ids=["value", "endless value", "endless name", "many", "dribbled", "path", "endless path", "with a body"],
)
def test_heads_that_are_too_large(shared: Stack, pieces: list[bytes]) -> None:
    status, headers, body = answer_to(shared, *pieces)
    assert status == 431
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert json.loads(body)["error"]["code"] == "request_header_fields_too_large"
    alive(shared)


def test_a_head_just_below_the_limit(shared: Stack) -> None:
    room = MAX_HEAD_BYTES - 200
    status, _, body = answer_to(shared, START + b"connection: close\r\nx: " + b"a" * room + b"\r\n\r\n")
    assert (status, json.loads(body)) == (200, {"status": "alive"})
    in_pieces = [START, b"connection: close\r\nx: ", *[b"a" * 1000] * (room // 1000), b"\r\n\r\n"]
    assert answer_to(shared, *in_pieces)[0] == 200


@pytest.mark.parametrize(
    "garbage",
    [b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100,
     b"GET /\xff HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
     b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: five\r\n\r\n",
     b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
     b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"],
)  # fmt: skip
def test_malformed_http(shared: Stack, garbage: bytes) -> None:
    with closing(connect(shared)) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        with suppress(ConnectionResetError):
            while piece := connection.recv(2**16):
                received += piece
    assert not received or received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
    assert b"Traceback" not in received
    alive(shared)


def test_malformed_http_gets_an_api_error_body(shared: Stack) -> None:
    status, headers, body = answer_to(shared, b"GET / HTTP/1.1\r\nno colon\r\n\r\n")
    assert (status, headers["content-type"]) == (400, "application/json")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


async def test_head_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 0.1)
    async with scripted_stack() as stack, stack.http() as client:
        host, _, port = stack.url.removeprefix("http://").partition(":")
        for beginning in (b"", b"GET /health HTTP/1.1\r\nx: "):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(beginning)
            assert await asyncio.wait_for(reader.read(), 20) == b""
            writer.close()
        assert (await client.get("/health")).status_code == 200


async def test_refused_body_is_discarded_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_module, "MAX_DISCARDED_BYTES", 2**20)
    async with scripted_stack() as stack:
        host, _, port = stack.url.removeprefix("http://").partition(":")
        for size, is_closed in ((2**20, False), (2**22, True)):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(post_head(2**30))
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
            writer.write(b"x" * size)
            with suppress(ConnectionError):
                await writer.drain()
            if not is_closed:
                assert stack.http_server.server_state.connections
                writer.close()
            await until(lambda: not stack.http_server.server_state.connections)
            writer.close()


async def test_refused_connection_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_module, "LINGER_SECONDS", 0.1)
    async with scripted_stack() as stack:
        host, _, port = stack.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /" + b"a" * 100_000)
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 431")
        await until(lambda: not stack.http_server.server_state.connections)
        writer.close()


def test_many_requests_on_one_connection(shared: Stack) -> None:
    with httpx2.Client(base_url=shared.url) as client:
        for _ in range(50):
            # Each head is well below the limit; their sum is not.
            assert client.get("/health", headers={"x": "a" * 10_000}).status_code == 200
            assert client.post("/nowhere", content=b"x" * 100_000).status_code == 404


def post_head(length: int, *lines: bytes) -> bytes:
    top = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return top + b"content-length: %d\r\n" % length + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def test_declared_size_is_refused_before_the_body(shared: Stack) -> None:
    with closing(connect(shared)) as connection:
        connection.sendall(post_head(100 * 2**20))
        received = connection.recv(2**16)
    assert received.startswith(b"HTTP/1.1 413")
    assert b"application/json" in received


def test_expect_continue_with_a_large_body_is_refused(shared: Stack) -> None:
    with closing(connect(shared)) as connection:
        connection.sendall(post_head(100 * 2**20, b"expect: 100-continue"))
        received = connection.recv(2**16)
    assert received.startswith(b"HTTP/1.1 413")
    alive(shared)


def test_expect_continue(shared: Stack) -> None:
    body = json.dumps({"model": "simulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}).encode()
    with closing(connect(shared)) as connection:
        connection.sendall(post_head(len(body), b"expect: 100-continue"))
        assert connection.recv(2**16).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("size", [9 * 2**20, 100 * 2**20])
def test_large_body_is_discarded_so_that_the_answer_arrives(shared: Stack, size: int) -> None:
    status, _, body = answer_to(shared, post_head(size, b"connection: close"), *[b"x" * 2**20] * (size // 2**20))
    assert status == 413
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    alive(shared)


def test_chunked_body_is_refused_while_it_arrives(shared: Stack) -> None:
    with closing(connect(shared)) as connection:
        connection.sendall(post_head(0).replace(b"content-length: 0", b"transfer-encoding: chunked"))
        piece = b"%x\r\n" % 2**16 + b"x" * 2**16 + b"\r\n"
        for _ in range(129):  # 8 MiB and one piece more.
            connection.sendall(piece)
        assert connection.recv(2**16).startswith(b"HTTP/1.1 413")
    alive(shared)


def test_upgrade_offer_is_ignored(shared: Stack) -> None:
    head = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    with closing(connect(shared)) as connection:
        connection.sendall(head)
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200")


def test_malformed_chunk_is_answered(shared: Stack) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    status, headers, body = answer_to(shared, head + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n{\r\nzz\r\n")
    assert (status, headers["connection"]) == (400, "close")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    alive(shared)


def chat_head(size: int, *more: bytes) -> bytes:
    lines = (b"POST /v1/chat/completions HTTP/1.1", b"host: x", b"content-type: application/json", *more)
    return b"\r\n".join((*lines, b"content-length: %d" % size, b"", b""))


@pytest.mark.parametrize("offer", [(b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMA"),
                                   (b"Connection: Upgrade", b"Upgrade: websocket")])  # fmt: skip
@pytest.mark.parametrize("cut", [1, 10**6])
def test_request_with_an_upgrade_offer_keeps_its_body(shared: Stack, offer: tuple[bytes, ...], cut: int) -> None:
    body = json.dumps({"model": MODEL, "messages": HI, "n": 0}).encode()
    data = chat_head(len(body), *offer) + body + b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    status, _, rest = answer_to(shared, *(data[start : start + cut] for start in range(0, len(data), cut)))
    assert status == 400
    assert b'"param":"n"' in rest
    assert rest.endswith(b'{"status":"alive"}')


def test_connect_is_refused(shared: Stack) -> None:
    assert answer_to(shared, b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\n\r\n")[0] == 400
    alive(shared)


def test_a_fault_in_a_head_with_an_offered_upgrade_is_named(shared: Stack) -> None:
    status, _, body = answer_to(shared, b"GET /health HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    assert (status, json.loads(body)["error"]["message"]) == (400, "the Host header is missing")
