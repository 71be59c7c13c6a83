"""Half-closed clients get their answers; requests of disconnected clients are cancelled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from starlette.types import Message

from gateway.http.disconnect import while_connected
from gateway.http.errors import ClientGone
from gateway.policy.interrupt import Interrupt
from tests.gateway.http.wire import chat, chat_body, connect, opened, parse, read_all
from tests.gateway.running import Stack, scripted_stack
from tests.gateway.scripted import GenerateCall, ScriptedEngine, head, tokens
from tests.gateway.sse import collect, undo_chunks
from tests.gateway.test_cancellation import Watched, stack_that_stops_at

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1"])


def text_of(received: bytes, stream: bool) -> str:
    status, headers, body = parse(received)
    assert status == 200
    if not stream:
        return body.decode()
    body = undo_chunks(body) if "transfer-encoding" in headers else body
    answer = collect(body.decode())
    assert answer.done
    return answer.choices[0].content


@VERSIONS
@BOTH
def test_half_closed_client_gets_its_answer(shared: Stack, stream: bool, version: str) -> None:
    script = {"steps": ["a", "b", "c"], "delay_ms": 50}
    with closing(connect(shared)) as connection:
        connection.sendall(chat(chat_body(model="simulated", stream=stream, simulate=script), version=version))
        connection.shutdown(socket.SHUT_WR)
        assert "abc" in text_of(read_all(connection), stream)


@VERSIONS
def test_half_closed_client_gets_an_immediate_answer(shared: Stack, version: str) -> None:
    with closing(connect(shared)) as connection:
        connection.sendall(f"GET /health HTTP/{version}\r\nhost: x\r\n\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        status, headers, body = parse(read_all(connection))
    assert (status, body) == (200, b'{"status":"alive"}')
    assert headers.get("connection", "close") == "close"


def test_half_closed_client_gets_all_pipelined_answers(shared: Stack) -> None:
    with closing(connect(shared)) as connection:
        body = chat_body(model="simulated", simulate={"steps": ["a"], "delay_ms": 50})
        connection.sendall(chat(body) + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection).count(b"HTTP/1.1 200") == 3


async def slowly(call: GenerateCall) -> None:
    """Long enough for several bytes to be sent ahead, before the answer and in the middle of it."""
    await asyncio.sleep(1.5)
    call.emit(head())
    call.emit(tokens("hel"))
    await asyncio.sleep(1.5)
    call.emit(tokens("lo", finish="length"))


@BOTH
async def test_half_closed_client_can_wait_long(stream: bool) -> None:
    async with scripted_stack(ScriptedEngine(slowly)) as stack, opened(stack) as (reader, writer):
        writer.write(chat(chat_body(stream=stream)))
        writer.write_eof()
        assert "hello" in text_of(await asyncio.wait_for(reader.read(), 20), stream)
        await stack.until_idle()


@pytest.mark.parametrize("phase", ["render", "queue", "prefill", "decode", "formatting"])
@BOTH
async def test_half_closed_client_that_disconnects(phase: str, stream: bool) -> None:
    """A disconnect in two steps."""
    watched = Watched()
    async with stack_that_stops_at(phase, watched) as stack, opened(stack) as (_, writer):
        writer.write(chat(chat_body(stream=stream)))
        writer.write_eof()
        await asyncio.wait_for(watched.reached.wait(), 20)
        await asyncio.sleep(0.05)
        assert not watched.cancelled.is_set()
        writer.close()
        await asyncio.wait_for(watched.cancelled.wait(), 20)
        await stack.until_idle()


@pytest.mark.parametrize("phase", ["render", "queue", "prefill"])
@BOTH
async def test_http_1_0_client_that_disconnects(phase: str, stream: bool) -> None:
    watched = Watched()
    async with stack_that_stops_at(phase, watched, sse_ping_seconds=0.1) as stack, opened(stack) as (_, writer):
        writer.write(chat(chat_body(stream=stream), version="1.0"))
        await asyncio.wait_for(watched.reached.wait(), 20)
        writer.close()
        await asyncio.wait_for(watched.cancelled.wait(), 20)
        await stack.until_idle()


async def test_disconnect_interrupts_the_block() -> None:
    messages: Iterator[Message] = iter(
        [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]
    )

    async def receive() -> Message:
        return next(messages)

    with pytest.raises(ClientGone):
        async with Interrupt() as interrupt, while_connected(receive, interrupt):
            await asyncio.sleep(60)


async def test_disconnect_after_the_block_has_no_effect() -> None:
    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    left = asyncio.Event()
    async with Interrupt() as interrupt:
        async with while_connected(receive, interrupt):
            pass
        left.set()
        for _ in range(5):
            await asyncio.sleep(0)
