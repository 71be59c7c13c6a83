"""The load of all engines in total, under the metric names of a single engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.replicas.info import EngineLoads
from svclib.errors import ServiceError

_SCRAPE_SECONDS: Final = 1.0
"""Time that a scrape on another thread waits for the event loop."""


class Loaded(Protocol):
    """An engine that reports its load."""

    async def loads(self) -> EngineLoads:
        """The current load. Raises ``ServiceError``; takes at most half a second."""


class EngineLoadCollector(Collector):
    """Fetches the load of all ready engines at each scrape; an engine that does not answer is left out.

    A scrape on the event loop awaits ``refresh`` first; one on another thread runs it on the loop.
    """

    def __init__(self, engines: Callable[[], Sequence[Loaded]], model_name: str) -> None:
        self._engines = engines
        self._model_name = model_name
        self._loads: list[EngineLoads] = []
        self._fetching: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0

    def start(self) -> None:
        """Use the running event loop."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()

    async def refresh(self) -> None:
        """Fetch the load of all engines. Concurrent calls share one fetch."""
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch())
        await asyncio.shield(self._fetching)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        if self._loop is not None and threading.get_ident() != self._loop_thread:
            with suppress(TimeoutError, RuntimeError):  # the loop is busy, or closed
                asyncio.run_coroutine_threadsafe(self.refresh(), self._loop).result(_SCRAPE_SECONDS)
        loads = self._loads
        running = sum(each.num_running for each in loads)
        waiting = sum(each.num_waiting for each in loads)
        yield self._gauge("vllm:num_requests_running", "Sequences running, summed over all engines.", running)
        yield self._gauge("vllm:num_requests_waiting", "Sequences waiting, summed over all engines.", waiting)

    async def _fetch(self) -> None:
        answers = await asyncio.gather(*map(_load_of, self._engines()))
        self._loads = [answer for answer in answers if answer is not None]

    def _gauge(self, name: str, documentation: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, documentation, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family


async def _load_of(engine: Loaded) -> EngineLoads | None:
    try:
        return await engine.loads()
    except ServiceError:
        return None
