"""Disconnects, timeouts and slow readers: in every phase, nothing of the request is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from protos.v1 import detokenizer_pb2
from tests.gateway.running import HI, MODEL, Stack, scripted_stack, until
from tests.gateway.scripted import (
    FormatCall,
    GenerateCall,
    ScriptedDetokenizer,
    ScriptedEngine,
    ScriptedTokenizer,
    head,
    spell,
    tokens,
)
from tests.gateway.sse import collect

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


class Watched:
    """Behaviour that stops at a phase and records its cancellation."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class Raw:
    """A client that sends given bytes, and disconnects when told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, **fields: Any) -> None:
        body = orjson.dumps({"model": MODEL, "messages": HI} | fields)
        self.send(request_head(len(body)) + body)

    async def hang_up(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def request_head(length: int, *more: str) -> bytes:
    lines = [
        "POST /v1/chat/completions HTTP/1.1", "host: x", "content-type: application/json",
        f"content-length: {length}", *more,
    ]  # fmt: skip
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@asynccontextmanager
async def raw(stack: Stack, **options: Any) -> AsyncIterator[Raw]:
    host, _, port = stack.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), **options)
    client = Raw(reader, writer)
    try:
        yield client
    finally:
        writer.close()


PHASES = ("body", "render", "queue", "prefill", "decode", "formatting")


def stack_that_stops_at(phase: str, watched: Watched, **settings: Any) -> Any:
    async def generate(call: GenerateCall) -> None:
        if phase == "queue":
            await watched.wait()
        call.emit(head())
        if phase == "prefill":
            await watched.wait()
        call.emit(tokens("hel"))
        if phase == "decode":
            await watched.wait()
        call.emit(tokens("lo", finish="length"))

    async def format(call: FormatCall) -> None:
        if phase == "formatting":
            await watched.wait()
        await spell(call)

    tokenizer = ScriptedTokenizer(watched.wait if phase == "render" else None)
    return scripted_stack(ScriptedEngine(generate), ScriptedDetokenizer(format), tokenizer, **settings)


@BOTH
@pytest.mark.parametrize("phase", PHASES)
async def test_client_disconnect_cancels_the_request(phase: str, stream: bool) -> None:
    watched = Watched()
    async with stack_that_stops_at(phase, watched) as stack, raw(stack) as client:
        if phase == "body":
            client.send(request_head(1000) + b"{")
            await until(lambda: stack.gateway.bodies.num_readers == 1)
            await client.hang_up()
            await until(lambda: stack.gateway.bodies.num_readers == 0)
        else:
            client.ask(stream=stream)
            await asyncio.wait_for(watched.reached.wait(), 20)
            assert stack.gateway.admission.in_use == 1
            await client.hang_up()
            await asyncio.wait_for(watched.cancelled.wait(), 20)
        await stack.until_idle()


@BOTH
@pytest.mark.parametrize("phase", ["queue", "prefill", "decode", "formatting"])
async def test_request_timeout(phase: str, stream: bool) -> None:
    watched = Watched()
    async with stack_that_stops_at(phase, watched, request_timeout=0.2) as stack:
        response = await stack.chat(stream=stream)
        if response.headers["content-type"] == "application/json":
            assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
        else:
            assert phase in {"prefill", "decode", "formatting"}
            answer = collect(response.text)
            assert answer.error["code"] == "timeout"
            assert not answer.done
        await asyncio.wait_for(watched.cancelled.wait(), 20)
        await stack.until_idle()


async def test_body_timeout() -> None:
    async with scripted_stack(body_timeout=0.2) as stack, raw(stack) as client:
        client.send(request_head(1000) + b"{")
        status = await client.reader.readline()
        assert b"408" in status
        await stack.until_idle()


async def test_tokenizer_timeout() -> None:
    watched = Watched()
    async with scripted_stack(tokenizer=ScriptedTokenizer(watched.wait), tokenizer_timeout=0.1) as stack:
        response = await stack.chat()
        assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
        await asyncio.wait_for(watched.cancelled.wait(), 20)


async def test_disconnect_releases_the_permit() -> None:
    watched = Watched()

    async def generate(call: GenerateCall) -> None:
        await watched.wait()

    async with scripted_stack(ScriptedEngine(generate), max_concurrent_requests=3) as stack, raw(stack) as client:
        client.ask(n=3)
        await asyncio.wait_for(watched.reached.wait(), 20)
        refused = await stack.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"]
        too_many = await stack.chat(n=4)
        assert too_many.status_code in {400, 503}
        await client.hang_up()
        await stack.until_idle()
        assert (await stack.chat(n=4)).json()["error"]["param"] == "n"


async def stop_at_once(call: FormatCall) -> None:
    """As if the first token completed a stop string."""
    async for _message in call:
        call.emit(detokenizer_pb2.FormatEvent(finish_reason="stop", matched_stop="h", completion_tokens=1))
        return


async def test_stop_string_ends_only_its_choice_in_the_engine() -> None:
    told: list[int] = []
    formats = iter((stop_at_once, spell, stop_at_once))

    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        for index in range(3):
            call.emit(tokens("hello", index=index))
        async for message in call:
            told.extend(message.indices)
            if len(told) == 2:
                call.emit(tokens("!", index=1, finish="length"))
                return

    async def format(call: FormatCall) -> None:
        await next(formats)(call)

    async with scripted_stack(ScriptedEngine(generate), ScriptedDetokenizer(format)) as stack:
        answer = (await stack.chat(n=3)).json()
        assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "length", "stop"]
        assert [choice["message"]["content"] for choice in answer["choices"]] == ["", "hello!", ""]
        assert answer["usage"]["completion_tokens"] == 1 + 6 + 1
        assert sorted(told) == [0, 2]
        await stack.until_idle()


async def test_sse_comments_keep_a_silent_stream_alive() -> None:
    """The engine waits until the client has read two comments, before its first event and mid-stream."""
    may_go_on = asyncio.Event()

    async def generate(call: GenerateCall) -> None:
        await may_go_on.wait()
        may_go_on.clear()
        call.emit(head())
        call.emit(tokens("hel"))
        await may_go_on.wait()
        call.emit(tokens("lo", finish="length"))

    text = ""
    async with scripted_stack(ScriptedEngine(generate), sse_ping_seconds=0.02) as stack, stack.http() as client:
        body = {"model": MODEL, "messages": HI, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            pings = 0
            async for piece in response.aiter_text():
                text += piece
                if text.count(": ping\n\n") >= pings + 2:
                    pings = text.count(": ping\n\n")
                    may_go_on.set()
    answer = collect(text)
    assert answer.choices[0].content == "hello"
    assert answer.done
    assert answer.pings >= 4


async def test_backpressure_from_a_slow_reader() -> None:
    """The engine finishes before the client reads. The gateway keeps merged events, not a growing write buffer."""
    count = 3000
    done = asyncio.Event()

    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        for _ in range(count):
            call.emit(tokens("0123456789"))
            await asyncio.sleep(0)
        call.emit(tokens("", finish="length"))
        done.set()

    engine = ScriptedEngine(generate)
    async with scripted_stack(engine) as stack, raw(stack, limit=2**12) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.ask(stream=True)
        await asyncio.wait_for(done.wait(), 60)
        (connection,) = stack.http_server.server_state.connections
        buffered = connection.transport.get_write_buffer_size()
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        text = b""
        while b"[DONE]" not in text:
            text += await client.reader.read(2**20)
        assert buffered < 512 * 1024
        body = text.partition(b"\r\n\r\n")[2]
        assert body.count(b"0123456789") == count
        await stack.until_idle()


async def test_request_of_a_client_that_stops_reading_is_aborted() -> None:
    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        while True:
            call.emit(tokens("0123456789" * 1000))
            await asyncio.sleep(0.001)

    async with (
        scripted_stack(ScriptedEngine(generate), request_timeout=1.0) as stack,
        raw(stack, limit=2**12) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.ask(stream=True)
        await until(lambda: stack.gateway.admission.in_use == 1)
        await stack.until_idle()


async def test_unread_output_is_bounded_and_aborts_only_its_request() -> None:
    """The request is gone while the client still does not read; its stream ends without `[DONE]`."""
    ended = asyncio.Event()

    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        if call.request.input_ids[0] != ord("s"):
            call.emit(tokens("hello", finish="length"))
            return
        try:
            while True:
                call.emit(tokens("0123456789" * 1000))
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    engine = ScriptedEngine(generate)
    async with (
        scripted_stack(engine, max_unread_bytes=256 * 1024, keep_alive_timeout=1) as stack,
        raw(stack, limit=2**12) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.ask(stream=True, messages=[{"role": "user", "content": "slow"}])
        await asyncio.wait_for(ended.wait(), 60)
        assert (await stack.chat()).json()["choices"][0]["message"]["content"] == "hello"
        await stack.until_idle()
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        text = b""
        while piece := await asyncio.wait_for(client.reader.read(2**20), 20):
            text += piece
        assert b"0123456789" in text
        assert b"[DONE]" not in text


async def test_draining() -> None:
    """Not ready at once, no new requests, and running ones finish."""
    go_on = asyncio.Event()

    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("hel"))
        await go_on.wait()
        call.emit(tokens("lo", finish="length"))

    engine = ScriptedEngine(generate)
    async with scripted_stack(engine) as stack:
        running = asyncio.create_task(stack.chat(stream=True))
        await until(lambda: bool(engine.calls))
        stack.gateway.admission.close()
        async with stack.http() as client:
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "unavailable")
            assert (await client.get("/health")).status_code == 200
        refused = await stack.chat()
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        go_on.set()
        answer = collect((await running).text)
        assert answer.choices[0].content == "hello"
        assert answer.done
        await stack.gateway.admission.idle()
