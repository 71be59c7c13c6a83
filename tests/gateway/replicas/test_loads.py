"""The engines' load in the gateway's metrics."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx2

from protos.v1 import engine_pb2
from svclib.metrics import serve_metrics
from svclib.status import unary
from tests.gateway.running import MODEL, scripted_stack, until
from tests.gateway.scripted import ScriptedEngine

NAMES = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class Loaded(ScriptedEngine):
    """An engine with a given load, which it reports unless it hangs."""

    def __init__(self, running: int, waiting: int) -> None:
        super().__init__()
        self.loads = engine_pb2.Loads(num_running_reqs=running, num_waiting_reqs=waiting)
        self.telling = asyncio.Event()
        self.telling.set()

    @unary
    async def GetLoads(self, request: engine_pb2.LoadsRequest, context: Any) -> engine_pb2.Loads:
        await self.telling.wait()
        return self.loads


def read(text: str) -> tuple[float, ...]:
    found = {}
    for name in NAMES:
        assert f"# TYPE {name} gauge" in text
        (found[name],) = re.findall(rf'^{re.escape(name)}{{model_name="{MODEL}"}} (.+)$', text, re.MULTILINE)
    return tuple(float(found[name]) for name in NAMES)


async def scrape(client: httpx2.AsyncClient) -> tuple[float, ...]:
    return read((await client.get("/metrics")).text)


async def test_loads_are_summed_over_engines() -> None:
    engines = [Loaded(3, 40), Loaded(2, 5)]
    async with scripted_stack(list(engines)) as stack, stack.http() as client:
        assert await scrape(client) == (5, 45)
        engines[0].loads.num_running_reqs = 9
        assert await scrape(client) == (11, 45)


async def test_lost_engine_is_not_counted() -> None:
    async with scripted_stack([Loaded(3, 40), Loaded(2, 5)]) as stack, stack.http() as client:
        await stack.peers["engine"][0].stop()
        await until(lambda: sum(stack.gateway.peers()["engine"].values()) == 1)
        assert await scrape(client) == (2, 5)
        await stack.peers["engine"][1].stop()
        await until(lambda: sum(stack.gateway.peers()["engine"].values()) == 0)
        assert await scrape(client) == (0, 0)


async def test_hanging_engine_does_not_block_scrapes() -> None:
    silent = Loaded(3, 40)
    silent.telling.clear()
    async with scripted_stack([silent, Loaded(2, 5)]) as stack, stack.http() as client:
        many = await asyncio.wait_for(asyncio.gather(*(scrape(client) for _ in range(20))), 15)
        assert many == [(2, 5)] * 20
        silent.telling.set()
        assert await scrape(client) == (5, 45)


async def test_separate_metrics_port_has_the_loads() -> None:
    async with scripted_stack([Loaded(3, 40), Loaded(2, 5)]) as stack, httpx2.AsyncClient(trust_env=False) as client:
        endpoint = serve_metrics(stack.gateway.metrics.registry, "127.0.0.1", 0)
        try:
            answer = await client.get(f"http://127.0.0.1:{endpoint.port}/metrics")
            assert read(answer.text) == (5, 45)
        finally:
            await asyncio.to_thread(endpoint.close)
