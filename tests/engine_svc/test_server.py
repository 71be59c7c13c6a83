from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from engine_svc.output import Sampled
from engine_svc.runners.interface import DeviceLost
from engine_svc.scheduling.step import ScheduledSequence
from protos.v1 import engine_pb2, engine_pb2_grpc
from svclib.errors import Unavailable
from tests.engine_svc.paged_model import PagedModel
from tests.engine_svc.serving import finish_of, prompt, script, serving, tokens_of

ROOT = Path(__file__).parents[2]


class Stuck(PagedModel):
    """A model whose steps hang until released."""

    def __init__(self) -> None:
        super().__init__(64, 16)
        self.go = threading.Event()

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        assert self.go.wait(60)
        return super().execute(batch)


class Doomed(PagedModel):
    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        raise DeviceLost("gone")


async def test_a_stall_shows_in_health_and_passes() -> None:
    model = Stuck()
    async with serving(lambda _settings: model, stall_seconds=0.1) as served:
        await served.until_health(serving=True)
        asking = asyncio.create_task(served.ask(prompt(max_tokens=3)))
        await served.until_health(serving=False)
        model.go.set()
        await served.until_health(serving=True)
        assert finish_of(await asking) == ["length"]


async def test_waiting_for_a_delayed_step_is_no_stall() -> None:
    async with serving(stall_seconds=0.05) as served:
        slow = prompt(simulate=script([65], delay_ms=600))
        asking = asyncio.create_task(served.ask(slow))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await served.until_health(serving=False)
        assert tokens_of(await asking)[0] == 65


async def test_a_failed_engine_reports_not_ready_and_ends_the_process() -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    try:
        async with serving(lambda _settings: Doomed(64, 16)) as served:
            assert not served.service.failed
            with pytest.raises(Unavailable):
                await served.ask(prompt(max_tokens=3))
            await served.until_health(serving=False)
            async with asyncio.timeout(10):
                await told.wait()
            assert served.service.failed
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_draining_finishes_running_requests_and_refuses_new_ones() -> None:
    async with serving() as served:
        async with served.open(prompt(simulate=script(*[[65]] * 10, delay_ms=20))) as stream:
            last = await anext(stream)
            draining = asyncio.create_task(served.service.drain())
            await asyncio.sleep(0)
            with pytest.raises(Unavailable):
                await served.ask(prompt(max_tokens=3))
            assert not draining.done()
            async for event in stream:
                last = event
        assert last.HasField("stats")
        await draining


async def test_the_layout_of_the_cache_is_exported() -> None:
    async with serving(lambda _settings: PagedModel(64, 16), served_model="m") as served:
        labels = {
            "model_name": "m", "block_size": "16", "num_gpu_blocks": "64", "enable_prefix_caching": "True",
            "cache_dtype": "bfloat16",
        }  # fmt: skip
        assert served.service.registry.get_sample_value("vllm:cache_config_info", labels) == 1


async def test_metrics_follow_the_requests() -> None:
    async with serving(served_model="m", num_blocks=50) as served:
        await asyncio.gather(*(served.ask(prompt(20, max_tokens=5)) for _ in range(3)))
        await served.until_idle()
        value = served.service.registry.get_sample_value
        labels = {"model_name": "m"}
        assert value("vllm:prompt_tokens_total", labels) == 60
        assert value("vllm:generation_tokens_total", labels) == 15
        assert value("vllm:request_success_total", {**labels, "finished_reason": "length"}) == 3
        assert value("vllm:num_requests_running", labels) == 0
        assert value("vllm:num_requests_waiting", labels) == 0
        assert value("vllm:kv_cache_usage_perc", labels) == 0


# The whole process, as the supervisor runs it.


@contextmanager
def process(*words: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """An engine process with its ports; killed at the end if it is still there."""
    port, metrics_port = _free_ports(2)
    environment = {
        **os.environ, "ENGINE_MODEL": "simulated", "ENGINE_PORT": str(port), "ENGINE_METRICS_PORT": str(metrics_port),
        **variables,
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            yield run, port, metrics_port
        finally:
            run.kill()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def _wait_until_serving(run: subprocess.Popen[str], channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    until = time.monotonic() + 60
    while True:
        try:
            answer = health.Check(health_pb2.HealthCheckRequest(service="pellucid.v1.Engine"))
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
        except grpc.RpcError:
            pass
        assert run.poll() is None, run.stderr and run.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_process_serves_and_ends_with_zero_when_told() -> None:
    with (
        process("-m", "engine_svc") as (run, port, metrics_port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        _wait_until_serving(run, channel)
        info = engine_pb2_grpc.EngineStub(channel).GetModelInfo(engine_pb2.ModelInfoRequest())
        assert info.simulated
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as answer:
            assert "vllm:cache_config_info" in answer.read().decode()
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 0


def test_no_torch_for_a_simulated_model() -> None:
    code = (
        "import sys; from engine_svc.config import Settings; from engine_svc.loading import load_runner;"
        "import engine_svc.server; load_runner(Settings()); print('torch' in sys.modules, file=sys.stderr)"
    )
    with process("-c", code) as (run, _, _):
        assert run.stderr is not None
        assert run.stderr.read().strip() == "False"


@pytest.mark.parametrize(
    "variables", [{"ENGINE_MODEL": ""}, {"ENGINE_NO_SUCH": "1"}, {"ENGINE_TOKENIZER": "/no/such/folder"}], ids=str
)
def test_a_bad_setting_ends_the_process_with_two(variables: dict[str, str]) -> None:
    with process("-m", "engine_svc", HF_HUB_OFFLINE="1", **variables) as (run, _, _):
        assert run.wait(60) == 2
        assert run.stderr is not None
        assert next(iter(variables)).removeprefix("ENGINE_").lower() in run.stderr.read().lower()


def test_a_lost_engine_ends_the_process_with_one() -> None:
    code = (
        "import sys; from engine_svc.config import Settings; from engine_svc.server import EngineService;"
        "from svclib.server import run; from tests.engine_svc.test_server import Doomed;"
        "settings = Settings(); service = EngineService(settings, load=lambda _: Doomed(64, 16));"
        "sys.exit(run(service, settings) or int(service.failed))"
    )
    with process("-c", code) as (run, port, _), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        _wait_until_serving(run, channel)
        ended = threading.Event()

        def speak() -> Iterator[engine_pb2.EngineClientFrame]:
            opening = engine_pb2.EngineClientEntry(id=1, open=prompt(max_tokens=3))
            yield engine_pb2.EngineClientFrame(entries=[opening])
            ended.wait(30)

        frames = engine_pb2_grpc.EngineStub(channel).Session(speak())
        entry = next(entry for frame in frames for entry in frame.entries)
        assert entry.failure.code == "unavailable"
        ended.set()
        assert run.wait(30) == 1
