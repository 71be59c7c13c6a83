"""From settings to a runner, with real weights or the simulated model, and to an engine around it."""

from __future__ import annotations

from typing import Final

from engine_svc.config import Settings
from engine_svc.embedding.interface import EmbeddingRunner
from engine_svc.engine import Engine
from engine_svc.execution.runner import Runner, RunnerInfo
from engine_svc.executors.openmp import wait_politely
from engine_svc.executors.simulated.runner import SimulatedRunner
from engine_svc.executors.simulated.vocabulary import load_vocabulary
from engine_svc.grammar.limits import CompileLimits
from engine_svc.metrics import EngineMetrics
from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.capacity import Capacity
from engine_svc.scheduling.scheduler import Scheduler
from engine_svc.scheduling.speculation import Speculation
from engine_svc.scheduling.step import StepLimits
from protos.simulated import MODEL_NAME

_MIB: Final = 1024 * 1024
_SIMULATED_CONTEXT: Final = 8192
_SIMULATED_BYTES_PER_TOKEN: Final = 8192
"""What the simulated model pretends that keys and values of a token take, so that memory means as much as elsewhere."""


def load_model(settings: Settings) -> Runner | EmbeddingRunner:
    """Load a model for what it is for. Raises ``SettingsError`` when the settings make it impossible."""
    if not settings.simulated:
        wait_politely()
        from engine_svc.embedding.loading import is_for_embedding

        if is_for_embedding(settings.model, settings.task):
            return _load_embedder(settings)
    return load_runner(settings)


def load_runner(settings: Settings) -> Runner:
    """Load the model; takes as long as that takes. Raises ``SettingsError`` when the settings make it impossible."""
    settings.check_generation()
    if settings.simulated:
        return SimulatedRunner(_simulated_info(settings), step_seconds=settings.simulated_step_ms / 1000.0)
    wait_politely()
    # Imported here because only real weights need torch.
    from engine_svc.executors.model_runner import load_model_runner

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
        quantization=settings.quantization,
        deterministic=settings.deterministic,
    )


def _load_embedder(settings: Settings) -> EmbeddingRunner:
    from engine_svc.embedding.loading import load_embedder

    settings.check_embedding()
    return load_embedder(
        model=settings.model,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        num_threads=settings.num_threads,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        attention_backend=settings.attention_backend,
    )


def build_engine(settings: Settings, runner: Runner, metrics: EngineMetrics) -> Engine:
    """An engine for a loaded model."""
    info = runner.info
    blocks = BlockManager(
        info.num_blocks,
        settings.block_size,
        model=f"{info.model_path} {info.dtype}",
        enable_prefix_caching=settings.enable_prefix_caching,
    )
    limits = StepLimits(settings.max_num_seqs, settings.max_num_batched_tokens, settings.max_prefill_chunk)
    return Engine(runner, Scheduler(limits, blocks, speculation_of(settings, info)), metrics)


def capacity_of(settings: Settings, info: RunnerInfo) -> Capacity:
    """What a request to that engine may hold."""
    return Capacity(info.max_model_len, settings.block_size, info.num_blocks)


def compile_limits_of(settings: Settings) -> CompileLimits:
    """What its constraints may take."""
    return CompileLimits(settings.grammar_compile_seconds, settings.grammar_memory_mb * _MIB)


def speculation_of(settings: Settings, info: RunnerInfo) -> Speculation | None:
    """How far to guess ahead of this model; None for not at all, as by default where guesses could change a bit."""
    if settings.speculation == "off" or (settings.speculation == "auto" and not info.rows_are_independent):
        return None
    return Speculation(settings.num_speculative_tokens, settings.max_speculative_step_tokens)


def describe(settings: Settings, info: RunnerInfo) -> dict[str, object]:
    """What an operator should know of a loaded model, for the log: what was chosen where the settings leave it open."""
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


def _simulated_info(settings: Settings) -> RunnerInfo:
    vocabulary = load_vocabulary(settings.tokenizer)
    bytes_per_block = settings.block_size * _SIMULATED_BYTES_PER_TOKEN
    return RunnerInfo(
        model_path=MODEL_NAME,
        model_type=MODEL_NAME,
        dtype="float32",
        cache_dtype="float32",
        vocab_size=vocabulary.size,
        max_model_len=settings.max_model_len or _SIMULATED_CONTEXT,
        num_blocks=settings.num_blocks or max(1, settings.kv_cache_memory_mb * _MIB // bytes_per_block),
        eos_token_ids=vocabulary.eos_token_ids,
        simulated=True,
    )
