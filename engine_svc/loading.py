"""From settings to a runner, with real weights or the simulated model, and to an engine around it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine_svc.config import Settings
from engine_svc.embedding.interface import EmbeddingRunner
from engine_svc.engine import Engine
from engine_svc.grammar.limits import CompileLimits
from engine_svc.metrics import EngineMetrics
from engine_svc.process import set_openmp_wait_policy
from engine_svc.runners.interface import Runner, RunnerInfo
from engine_svc.runners.simulated.loading import load_simulated
from engine_svc.runners.simulated.runner import SimulatedRunner
from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.capacity import Capacity
from engine_svc.scheduling.pace import Pace
from engine_svc.scheduling.scheduler import Scheduler
from engine_svc.scheduling.speculation import Speculation
from engine_svc.scheduling.step import StepLimits
from protos.simulated import MODEL_NAME

_MIB: Final = 1024 * 1024


def load_model(settings: Settings) -> Runner | EmbeddingRunner:
    """Load a model to generate or to embed. Raises ``SettingsError`` if it cannot be loaded with these settings."""
    if not settings.simulated:
        set_openmp_wait_policy()
        from engine_svc.embedding.embedder_loader import is_for_embedding

        if is_for_embedding(settings.model, settings.task):
            return _load_embedder(settings)
    return load_runner(settings)


def load_runner(settings: Settings) -> Runner:
    """Load a model to generate. Raises ``SettingsError`` if it cannot be loaded with these settings."""
    settings.check_generation()
    if settings.simulated:
        return _load_simulated(settings)
    set_openmp_wait_policy()
    # Imported here because only real weights need torch.
    from engine_svc.runners.model_runner import load_model_runner

    return load_model_runner(
        model=settings.model,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        block_size=settings.block_size,
        kv_cache_bytes=settings.kv_cache_memory_mb * _MIB,
        num_blocks=settings.num_blocks,
        num_threads=settings.num_threads,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        attention_backend=settings.attention_backend,
        executor=settings.executor,
        quantization=settings.quantization,
        deterministic=settings.deterministic,
        kv_cache_dtype=settings.kv_cache_dtype,
    )


def _load_simulated(settings: Settings) -> SimulatedRunner:
    return load_simulated(
        tokenizer=settings.tokenizer,
        max_model_len=settings.max_model_len,
        block_size=settings.block_size,
        kv_cache_bytes=settings.kv_cache_memory_mb * _MIB,
        num_blocks=settings.num_blocks,
        step_seconds=settings.simulated_step_ms / 1000.0,
    )


def _load_embedder(settings: Settings) -> EmbeddingRunner:
    from engine_svc.embedding.embedder_loader import load_embedder

    settings.check_embedding()
    return load_embedder(
        model=settings.model,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        num_threads=settings.num_threads,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        attention_backend=settings.attention_backend,
    )


def build_engine(
    settings: Settings, runner: Runner, metrics: EngineMetrics, clock: Callable[[], float] = time.monotonic
) -> Engine:
    """An engine for a loaded model, whose steps ``clock`` measures."""
    info = runner.info
    blocks = BlockManager(
        info.num_blocks,
        settings.block_size,
        model=f"{info.model_path} {info.dtype} {info.cache_dtype}",
        enable_prefix_caching=settings.enable_prefix_caching,
    )
    scheduler = Scheduler(limits_of(settings), blocks, speculation_of(settings, info), pace_of(settings, info))
    return Engine(runner, scheduler, metrics, clock)


def limits_of(settings: Settings) -> StepLimits:
    """The limits of a step, in sequences and tokens."""
    budget = settings.max_num_batched_tokens
    return StepLimits(settings.max_num_seqs, budget, settings.max_prefill_chunk or budget)


def pace_of(settings: Settings, info: RunnerInfo) -> Pace | None:
    """The limit of a step in time; None for the simulated model, whose steps take as long whatever is in them."""
    if info.simulated:
        return None
    max_seconds = None if settings.max_step_ms is None else settings.max_step_ms / 1000.0
    return Pace(max_seconds, min_tokens=settings.block_size)


def capacity_of(settings: Settings, info: RunnerInfo) -> Capacity:
    """The limits of a sequence in that engine."""
    return Capacity(info.max_model_len, settings.block_size, info.num_blocks)


def tokenizer_source(settings: Settings) -> str:
    """The folder or GGUF file of the tokenizer whose vocabulary the output uses, or ``simulated``.

    A folder with a tokenizer need not contain a model. Raises ``ModelLoadError`` if it does not exist.
    """
    source = settings.vocabulary_source
    if source in ("", MODEL_NAME):
        return MODEL_NAME
    # Imported here because the import is slow.
    from engine_svc.weights.source import locate

    folder = Path(source).expanduser()
    return str(folder if (folder / "tokenizer.json").is_file() else locate(source))


def compile_limits_of(settings: Settings) -> CompileLimits:
    """The limits of compiling a constraint."""
    return CompileLimits(settings.grammar_compile_seconds, settings.grammar_memory_mb * _MIB)


def speculation_of(settings: Settings, info: RunnerInfo) -> Speculation | None:
    """Speculative decoding for this model; None: off, by default unless the model is batch-invariant."""
    if settings.speculation == "off" or (settings.speculation == "auto" and not info.batch_invariant):
        return None
    return Speculation(settings.num_speculative_tokens, settings.max_speculative_step_tokens)


def describe(settings: Settings, info: RunnerInfo) -> dict[str, object]:
    """What was loaded, for the log: the values chosen where the settings leave them open."""
    speculation = speculation_of(settings, info)
    return {
        "computes_in": info.dtype,
        "quantization": settings.quantization,
        "speculation": "off" if speculation is None else "ngram",
        "kv_cache_tokens": info.num_blocks * settings.block_size,
        "kv_cache_mib": round(info.kv_cache_bytes / _MIB),
        "kv_cache_dtype": info.cache_dtype,
        "max_model_len": info.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
    }
