"""The detokenizer as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from detokenizer_svc.config import DetokenizerSettings
from protos.v1 import detokenizer_pb2 as pb
from protos.v1 import detokenizer_pb2_grpc as pb_grpc
from svclib.channel import connect
from svclib.config import SettingsError
from svclib.session import Opening, SessionClient


@asynccontextmanager
async def process(*flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "detokenizer_svc", "--port=0", "--metrics-port=0", *flags,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def line(running: asyncio.subprocess.Process, event: str) -> dict[str, Any]:
    """The next log line of an event."""
    assert running.stderr is not None
    async with asyncio.timeout(60):
        async for raw in running.stderr:
            entry: dict[str, Any] = json.loads(raw)
            if entry["event"] == event:
                return entry
    raise AssertionError(f"no {event!r} in the log")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


async def test_it_serves_and_stops_on_sigterm(smollm2: Path) -> None:
    async with process(f"--model={smollm2}") as running:
        started = await line(running, "started")
        assert (await line(running, "vocabulary loaded"))["tokens"] == 49152
        await line(running, "serving")
        channel = connect(started["address"])
        stub: pb_grpc.DetokenizerAsyncStub = pb_grpc.DetokenizerStub(channel)
        assert (await stub.GetInfo(pb.DetokenizerInfoRequest())).vocab_size == 49152
        client: SessionClient[pb.FormatRequest, pb.FormatInput, pb.FormatEvent] = SessionClient(
            stub.Session, pb.DetokenizerClientFrame, peer="detokenizer"
        )
        async with client.open(pb.FormatRequest(), Opening("r")) as stream:
            stream.send(pb.FormatInput(token_ids=[7042, 30]))
            first = await anext(stream)
            running.send_signal(signal.SIGTERM)
            await line(running, "draining")
            stream.send(pb.FormatInput(token_ids=[2], finish_reason="stop", ended_by_token=True))
            last = await anext(stream)
        assert [delta.content for delta in first.deltas] == [" Paris."]
        assert (last.finish_reason, last.completion_tokens) == ("stop", 3)
        await client.close()
        await channel.close(None)
        async with asyncio.timeout(20):
            assert await running.wait() == 0


async def test_metrics_are_served() -> None:
    async with process("--model=simulated") as running:
        port = (await line(running, "started"))["metrics_port"]
        await line(running, "serving")
        text = await asyncio.to_thread(read, f"http://127.0.0.1:{port}/metrics")
    names = ("tokens_total", "events_total", "choices_running")
    assert all(f"pellucid_detokenizer_{name} 0.0" in text for name in names)


@pytest.mark.parametrize("flags", [["--model=/nowhere/model.gguf"], ["--tokenizer=/nowhere/model.gguf"], ["--bad=1"]])
async def test_invalid_settings_exit_with_2(flags: list[str]) -> None:
    async with process(*flags) as running:
        assert running.stderr is not None
        async with asyncio.timeout(60):
            log = (await running.stderr.read()).decode()
            assert await running.wait() == 2
        assert flags[0].partition("=")[2].removeprefix("1") in log
        assert "Traceback" not in log


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DetokenizerSettings.load([])
    assert (settings.port, settings.metrics_port, settings.vocabulary_source) == (50053, 9103, "simulated")
    monkeypatch.setenv("DETOKENIZER_MODEL", "some/model")
    assert DetokenizerSettings.load([]).vocabulary_source == "some/model"
    assert DetokenizerSettings.load(["--tokenizer=folder"]).vocabulary_source == "folder"


@pytest.mark.parametrize("flags", [["--model="], ["--metrics-port=-1"], ["--port=70000"]])
def test_invalid_settings(flags: list[str]) -> None:
    with pytest.raises(SettingsError, match=flags[0].partition("=")[0].strip("-").replace("-", "_")):
        DetokenizerSettings.load(flags)


def test_the_settings_table_of_the_readme_is_complete() -> None:
    readme = (Path(__file__).parents[2] / "detokenizer_svc" / "README.md").read_text()
    for name, setting in DetokenizerSettings.model_fields.items():
        assert f"`DETOKENIZER_{name.upper()}`" in readme
        if name not in ("drain_seconds", "tokenizer"):
            assert f"`{setting.default}`" in readme
