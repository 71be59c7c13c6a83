"""The gateway as a process: it starts without services, drains on a signal, and exits."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from gateway.server import listen
from tests.gateway.running import HI, MODEL, Peer
from tests.gateway.scripted import (
    GenerateCall,
    ScriptedDetokenizer,
    ScriptedEngine,
    ScriptedTokenizer,
    head,
    tokens,
)
from tests.gateway.sse import collect

NOBODY = [f"--{name}-addresses=127.0.0.1:1" for name in ("tokenizer", "engine", "detokenizer")]
"""Not the default addresses, where a stack may be running."""


class Process:
    """A running gateway and its log lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.url = ""

    async def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """The next log line with this event and these fields."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            async for line in self.process.stderr:
                found: dict[str, Any] = json.loads(line)
                if found["event"] == event and fields.items() <= found.items():
                    return found
        raise AssertionError(f"the log ended without {event!r}")

    async def end(self) -> int:
        async with asyncio.timeout(30):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def gateway_process(*flags: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", f"--served-model-name={MODEL}", "--port=0", *flags,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@asynccontextmanager
async def serving(engine: ScriptedEngine, *flags: str) -> AsyncIterator[Process]:
    """A ready gateway process in front of scripted services."""
    peers = {
        "tokenizer": Peer(ScriptedTokenizer()),
        "engine": Peer(engine),
        "detokenizer": Peer(ScriptedDetokenizer()),
    }
    for peer in peers.values():
        await peer.start()
    addresses = [f"--{name}-addresses={peer.address}" for name, peer in peers.items()]
    try:
        async with gateway_process(*addresses, *flags) as process:
            process.url = f"http://{(await process.wait_for('started'))['address']}"
            for _ in peers:
                await process.wait_for("peer is ready")
            yield process
    finally:
        for peer in peers.values():
            await peer.stop()


class Waiting(ScriptedEngine):
    """Emits half of its output, and the rest when told to."""

    def __init__(self) -> None:
        super().__init__(self.half)
        self.may_go_on = asyncio.Event()

    async def half(self, call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("hel"))
        await self.may_go_on.wait()
        call.emit(tokens("lo", finish="length"))


async def stream(url: str, started: asyncio.Event) -> str:
    text = ""
    body = {"model": MODEL, "messages": HI, "stream": True}
    async with (
        httpx2.AsyncClient(timeout=30) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=body) as response,
    ):
        async for piece in response.aiter_text():
            text += piece
            if "hel" in text:
                started.set()
    return text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_running_stream_finishes_before_exit(number: signal.Signals) -> None:
    engine, started = Waiting(), asyncio.Event()
    async with serving(engine) as process, httpx2.AsyncClient() as client:
        streaming = asyncio.create_task(stream(process.url, started))
        await started.wait()
        process.process.send_signal(number)
        await process.wait_for("draining")
        ready = await client.get(f"{process.url}/ready")
        assert ready.status_code == 503
        assert (await client.get(f"{process.url}/health")).status_code == 200
        refused = await client.post(f"{process.url}/v1/chat/completions", json={"model": MODEL, "messages": HI})
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        engine.may_go_on.set()
        answer = collect(await streaming)
        assert answer.choices[0].content == "hello"
        assert answer.done
        await process.wait_for("stopped")
        assert await process.end() == 0


async def test_stream_beyond_the_drain_time_gets_an_error() -> None:
    started = asyncio.Event()
    async with serving(Waiting(), "--drain-seconds=0.2") as process:
        streaming = asyncio.create_task(stream(process.url, started))
        await started.wait()
        process.process.send_signal(signal.SIGTERM)
        answer = collect(await streaming)
        assert answer.choices[0].content == "hel"
        assert answer.error["code"] == "unavailable"
        assert not answer.done
        assert await process.end() == 0


async def test_idle_gateway_exits_at_once_without_services() -> None:
    async with gateway_process(*NOBODY) as process:
        address = (await process.wait_for("started"))["address"]
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"http://{address}/ready")).status_code == 503
        process.process.send_signal(signal.SIGTERM)
        await process.wait_for("stopped")
        assert await process.end() == 0


async def test_port_in_use() -> None:
    with listen("127.0.0.1", 0) as taken:
        async with gateway_process(f"--port={taken.getsockname()[1]}", *NOBODY) as process:
            await process.wait_for("cannot listen")
            assert await process.end() == 1


async def test_invalid_setting() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "--served-model-name=m", "--request-timeout=never",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, text = await process.communicate()
    assert process.returncode == 2
    assert b"request_timeout" in text


async def test_separate_metrics_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with gateway_process(f"--metrics-port={port}", *NOBODY) as process, httpx2.AsyncClient() as client:
        await process.wait_for("started")
        assert "pellucid_gateway_choices_running" in (await client.get(f"http://127.0.0.1:{port}/metrics")).text


async def test_one_log_line_per_request() -> None:
    engine = Waiting()
    engine.may_go_on.set()
    async with serving(engine) as process, httpx2.AsyncClient() as client:
        body = {"model": MODEL, "messages": HI, "frobnicate": 1}
        headers = {"x-request-id": "mine-1"}
        await client.post(f"{process.url}/v1/chat/completions", json=body, headers=headers)
        line = await process.wait_for("request")
        assert line["request_id"] == "mine-1"
        assert (line["route"], line["status"], line["method"]) == ("/v1/chat/completions", 200, "POST")
        assert (line["prompt_tokens"], line["tokens_by_choice"], line["finish_reasons"]) == (5, [5], ["length"])
        assert line["ignored"] == ["frobnicate"]
        assert set(line["replicas"]) == {"tokenizer", "engine", "detokenizer"}
        assert line["service"] == "gateway"
        assert "hi" not in line.values()
