"""The service as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.v1 import tokenizer_pb2 as pb
from protos.v1 import tokenizer_pb2_grpc as pb_grpc
from svclib.channel import connect
from tests.tokenizer_svc import hostile_templates, real, templates


class Running:
    """The process and its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def wait_for(self, event: str) -> dict[str, Any]:
        """The first log line with this event."""
        assert self.process.stderr is not None
        lines = []
        async with asyncio.timeout(120):
            while line := (await self.process.stderr.readline()).decode():
                lines.append(line)
                if line.startswith("{") and json.loads(line)["event"] == event:
                    found: dict[str, Any] = json.loads(line)
                    return found
        raise AssertionError(f"ended without {event!r}: {lines}")


@asynccontextmanager
async def running(*flags: str) -> AsyncIterator[Running]:
    command = (sys.executable, "-m", "tokenizer_svc", "--port", "0", "--metrics-port", "0", *flags)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_start_serve_and_shutdown() -> None:
    async with running() as service:
        started = await service.wait_for("started")
        loaded = await service.wait_for("tokenizer loaded")
        await service.wait_for("serving")
        async with connect(started["address"]) as channel:
            health = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="pellucid.v1.Tokenizer")
            )
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            request = pb.RenderRequest(messages=[pb.ChatMessage(role="user", text="hi")])
            answer = await pb_grpc.TokenizerStub(channel).Render(request)
        assert answer.template_version == loaded["template_version"]
        url = f"http://127.0.0.1:{started['metrics_port']}/metrics"
        with await asyncio.to_thread(urllib.request.urlopen, url) as response:
            assert f"pellucid_tokenizer_prompt_tokens_total {len(answer.token_ids)}.0" in response.read().decode()
        service.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await service.process.wait() == 0


async def test_the_default_model() -> None:
    async with running("--model", str(real.gguf_file())) as service:
        loaded = await service.wait_for("tokenizer loaded")
        assert loaded["tokens"] == 49152
        assert loaded["reasoning_format"] == ""


async def test_a_missing_model(tmp_path: Path) -> None:
    async with running("--model", str(tmp_path / "missing.gguf")) as service:
        error = await service.wait_for("cannot start")
        assert "missing.gguf" in error["error"]
        async with asyncio.timeout(20):
            assert await service.process.wait() == 2


async def test_an_unusable_template(tmp_path: Path) -> None:
    template = tmp_path / "bad.jinja"
    template.write_text("{{ ''.__class__.__mro__ }}")
    async with running("--chat-template", str(template)) as service:
        assert "the chat template cannot be used" in (await service.wait_for("cannot start"))["error"]
        async with asyncio.timeout(20):
            assert await service.process.wait() == 2


@pytest.mark.parametrize(
    ("hostile", "sentence"),
    [
        (hostile_templates.SLOW["nested ranges"], "ran for more than 1 seconds"),
        ("{% if tools %}" + hostile_templates.SLOW["nested ranges"] + "{% endif %}", "ran for more than 1 seconds"),
        (hostile_templates.LARGE["center"], "needed more than 128 MB of memory"),
        ("{% set x = 'a' * 10 ** 10 %}", "needed more than 128 MB of memory"),
    ],
)
async def test_the_service_does_not_start_with_a_runaway_template(tmp_path: Path, hostile: str, sentence: str) -> None:
    template = tmp_path / "hostile.jinja"
    template.write_text(templates.WITH_TOOLS + hostile)
    flags = ("--chat-template", str(template), "--render-seconds", "1", "--render-memory-mb", "128")
    async with running(*flags) as service:
        error = (await service.wait_for("cannot start"))["error"]
        assert error.startswith("the chat template cannot be used: ")
        assert error.endswith(sentence)
        async with asyncio.timeout(20):
            assert await service.process.wait() == 2


async def test_an_unknown_setting() -> None:
    async with running("--workers", "0") as service:
        async with asyncio.timeout(20):
            assert await service.process.wait() == 2
