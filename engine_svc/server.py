"""The engine as a service: start, readiness, drain and stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import Final

import grpc
import structlog
from prometheus_client import CollectorRegistry

from engine_svc.backends.building import build_backend
from engine_svc.backends.interface import Backend
from engine_svc.config import Settings
from engine_svc.embedding.interface import EmbeddingRunner
from engine_svc.heartbeat import Heartbeat
from engine_svc.loading import load_model
from engine_svc.process import freeze_heap
from engine_svc.runners.interface import Runner
from engine_svc.servicer import EngineServicer
from protos.v1 import engine_pb2, engine_pb2_grpc
from svclib.health import Health

_WATCH_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class EngineService:
    """Serves a model. ``failed`` is true once the engine has failed: the process then ends by itself."""

    name: Final = "engine"
    service_names: Final = (engine_pb2.DESCRIPTOR.services_by_name["Engine"].full_name,)

    def __init__(
        self, settings: Settings, *, load: Callable[[Settings], Runner | EmbeddingRunner] = load_model
    ) -> None:
        self.registry = CollectorRegistry()
        self.failed = False
        self._settings = settings
        self._load = load
        self._heartbeat = Heartbeat(settings.stall_seconds)
        self._servicer = EngineServicer()
        self._backend: Backend | None = None
        self._watch: asyncio.Task[None] | None = None

    def register(self, server: grpc.aio.Server) -> None:
        engine_pb2_grpc.add_EngineServicer_to_server(self._servicer, server)

    async def start(self, health: Health) -> None:
        log.info("loading", model=self._settings.model)
        runner = await asyncio.to_thread(self._load, self._settings)
        on_failure = partial(self._fail, health)
        self._backend = await build_backend(self._settings, runner, self.registry, self._heartbeat, on_failure)
        self._servicer.attach(self._backend)
        freeze_heap()
        self._backend.start()
        self._watch = asyncio.create_task(self._watch_heartbeat(health))

    async def drain(self) -> None:
        await self._servicer.drain()
        if self._backend is not None:
            await self._backend.drain()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._backend is not None:
            await self._backend.stop()

    async def _watch_heartbeat(self, health: Health) -> None:
        """Not ready while the step loop is stalled, ready again after its next step."""
        was_stalled = False
        while True:
            await asyncio.sleep(min(_WATCH_SECONDS, self._settings.stall_seconds / 4))
            if self._heartbeat.is_stalled != was_stalled:
                was_stalled = not was_stalled
                log.warning("stalled" if was_stalled else "recovered", stall_seconds=self._settings.stall_seconds)
                health.set_serving(not was_stalled)

    def _fail(self, health: Health) -> None:
        """The engine failed: report not ready, and shut down with exit code 1."""
        self.failed = True
        if self._watch is not None:
            self._watch.cancel()
        health.set_serving(False)
        signal.raise_signal(signal.SIGTERM)
