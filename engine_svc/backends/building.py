"""From a loaded model to the backend that serves it: the one place that checks which kind of model it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry

from engine_svc.backends.embedding import EmbeddingBackend, EmbeddingLoop
from engine_svc.backends.generation import GenerationBackend, GenerationLoop
from engine_svc.backends.interface import Backend
from engine_svc.config import Settings
from engine_svc.embedding.engine import EmbeddingEngine
from engine_svc.embedding.interface import EmbedderInfo, EmbeddingRunner
from engine_svc.embedding.validation import MAX_TOKENS, MAX_WAITING_TOKENS
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.grammar.vocabulary import load_grammar_vocabulary
from engine_svc.heartbeat import Heartbeat
from engine_svc.loading import build_engine, capacity_of, compile_limits_of, describe, tokenizer_source
from engine_svc.metrics import EngineMetrics
from engine_svc.runners.interface import Runner
from engine_svc.scheduling.capacity import Slots

log = structlog.get_logger(__name__)


async def build_backend(
    settings: Settings,
    runner: Runner | EmbeddingRunner,
    registry: CollectorRegistry,
    heartbeat: Heartbeat,
    on_failure: Callable[[], None],
) -> Backend:
    """A backend, not started. ``on_failure`` is called on the event loop when its engine has failed for good."""
    metrics = EngineMetrics(registry, settings.model_name)
    if isinstance(runner.info, EmbedderInfo):
        return _embedding(runner, metrics, heartbeat, on_failure)
    return await _generation(settings, runner, metrics, heartbeat, on_failure)


def _embedding(
    runner: EmbeddingRunner, metrics: EngineMetrics, heartbeat: Heartbeat, on_failure: Callable[[], None]
) -> Backend:
    info = runner.info
    log.info("loaded embedding model", pooling=info.pooling, dimensions=info.embedding_dim, longest=info.max_model_len)
    slots = Slots(MAX_TOKENS, MAX_WAITING_TOKENS - MAX_TOKENS, unit="tokens", param="input")
    steps: EmbeddingLoop = EmbeddingLoop(EmbeddingEngine(runner, metrics), slots, heartbeat, on_failure)
    metrics.watch_loads(lambda: steps.loads, num_blocks=0)
    return EmbeddingBackend(info, steps)


async def _generation(
    settings: Settings, runner: Runner, metrics: EngineMetrics, heartbeat: Heartbeat, on_failure: Callable[[], None]
) -> Backend:
    info = runner.info
    vocabulary = await asyncio.to_thread(lambda: load_grammar_vocabulary(tokenizer_source(settings), info.vocab_size))
    engine = build_engine(settings, runner, metrics)
    log.info("loaded", **describe(settings, info))
    slots = Slots(settings.max_num_seqs, settings.max_waiting)
    steps: GenerationLoop = GenerationLoop(engine, slots, heartbeat, on_failure)
    metrics.watch_loads(lambda: steps.loads, info.num_blocks)
    metrics.describe_cache(
        block_size=settings.block_size,
        num_blocks=info.num_blocks,
        enable_prefix_caching=settings.enable_prefix_caching,
        cache_dtype=info.cache_dtype,
    )
    grammars = GrammarCompiler(vocabulary, metrics.count_grammar, compile_limits_of(settings))
    return GenerationBackend(info, capacity_of(settings, info), settings.max_num_seqs, engine, steps, grammars)
