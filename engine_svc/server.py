"""The engine as a service: what is built at start, what is watched, what is given back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import Final

import grpc
import structlog
from prometheus_client import CollectorRegistry

from engine_svc import settling
from engine_svc.config import Settings
from engine_svc.embedding.engine import EmbeddingEngine
from engine_svc.embedding.interface import EmbedderInfo, EmbeddingRunner
from engine_svc.embedding.loop import EmbeddingLoop
from engine_svc.embedding.servicer import EmbeddingBackend
from engine_svc.execution.runner import Runner
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.grammar.vocabulary import Vocabulary, load_vocabulary
from engine_svc.heartbeat import Heartbeat
from engine_svc.loading import build_engine, capacity_of, compile_limits_of, describe, load_model
from engine_svc.metrics import EngineMetrics
from engine_svc.scheduling.capacity import Places
from engine_svc.servicer import Backend, EngineServicer
from engine_svc.step_loop import StepLoop
from protos.v1 import engine_pb2, engine_pb2_grpc
from svclib.server import Health

_WATCH_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class EngineService:
    """A model, served. ``failed`` is true once the engine is lost: the process then ends by itself."""

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
        self._steps: StepLoop | EmbeddingLoop | None = None
        self._grammars: GrammarCompiler | None = None
        self._watch: asyncio.Task[None] | None = None

    def register(self, server: grpc.aio.Server) -> None:
        engine_pb2_grpc.add_EngineServicer_to_server(self._servicer, server)

    async def start(self, health: Health) -> None:
        log.info("loading", model=self._settings.model)
        runner = await asyncio.to_thread(self._load, self._settings)
        on_death = partial(self._die, health)
        if isinstance(runner.info, EmbedderInfo):
            self._steps = self._serve_embedding(runner, on_death)
        else:
            self._steps = await self._serve_generation(runner, on_death)
        settling.settle()
        self._steps.start()
        if self._grammars is not None:
            self._grammars.start()
        self._watch = asyncio.create_task(self._watch_heartbeat(health))

    async def drain(self) -> None:
        await self._servicer.drain()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._grammars is not None:
            self._grammars.close()
        if self._steps is not None:
            await self._steps.stop()

    async def _serve_generation(self, runner: Runner, on_death: Callable[[], None]) -> StepLoop:
        """Let a model that generates serve the calls; returns its loop, not started."""
        vocabulary = await asyncio.to_thread(load_vocabulary, self._settings.vocabulary_source, runner.info.vocab_size)
        backend = self._build(runner, vocabulary, on_death)
        self._grammars = backend.grammars
        self._servicer.attach(backend)
        return backend.steps

    def _serve_embedding(self, runner: EmbeddingRunner, on_death: Callable[[], None]) -> EmbeddingLoop:
        """Let a model that embeds serve the calls; returns its loop, not started."""
        info = runner.info
        log.info("this model embeds", pooling=info.pooling, dimensions=info.embedding_dim, longest=info.max_model_len)
        metrics = EngineMetrics(self.registry, self._settings.model_name)
        loop = EmbeddingLoop(EmbeddingEngine(runner, metrics), self._heartbeat, on_death)
        metrics.watch_loads(lambda: loop.loads, num_blocks=0)
        self._servicer.attach_embedding(EmbeddingBackend(loop))
        return loop

    def _build(self, runner: Runner, vocabulary: Vocabulary | None, on_death: Callable[[], None]) -> Backend:
        settings, info = self._settings, runner.info
        metrics = EngineMetrics(self.registry, settings.model_name)
        engine = build_engine(settings, runner, metrics)
        log.info("loaded", **describe(settings, info))
        places = Places(settings.max_num_seqs, settings.max_waiting)
        steps = StepLoop(engine, places, self._heartbeat, on_death)
        metrics.watch_loads(lambda: steps.loads, info.num_blocks)
        metrics.describe_cache(
            block_size=settings.block_size,
            num_blocks=info.num_blocks,
            enable_prefix_caching=settings.enable_prefix_caching,
            cache_dtype=info.cache_dtype,
        )
        grammars = GrammarCompiler(vocabulary, metrics.count_grammar, compile_limits_of(settings))
        return Backend(info, capacity_of(settings, info), settings.max_num_seqs, steps, grammars)

    async def _watch_heartbeat(self, health: Health) -> None:
        """Be unready while the step loop owes a step for too long, and ready again when it has made one."""
        was_stalled = False
        while True:
            await asyncio.sleep(min(_WATCH_SECONDS, self._settings.stall_seconds / 4))
            if self._heartbeat.is_stalled != was_stalled:
                was_stalled = not was_stalled
                log.warning("stalled" if was_stalled else "recovered", stall_seconds=self._settings.stall_seconds)
                health.set_serving(not was_stalled)

    def _die(self, health: Health) -> None:
        """The engine is lost: say so, and end as if told to, but with a bad exit code."""
        self.failed = True
        if self._watch is not None:
            self._watch.cancel()
        health.set_serving(False)
        signal.raise_signal(signal.SIGTERM)
