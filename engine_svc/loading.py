"""From settings to a runner: real weights, or the simulated model."""

from __future__ import annotations

from typing import Final

from engine_svc.config import Settings
from engine_svc.execution.openmp import wait_politely
from engine_svc.execution.runner import Runner, RunnerInfo
from engine_svc.execution.simulated import SimulatedRunner
from engine_svc.execution.vocabulary import load_vocabulary
from protos.simulated import MODEL_NAME

_MIB: Final = 1024 * 1024
_SIMULATED_CONTEXT: Final = 8192
_SIMULATED_BYTES_PER_TOKEN: Final = 8192
"""What the simulated model pretends that keys and values of a token take, so that memory means as much as elsewhere."""


def load_runner(settings: Settings) -> Runner:
    """Load the model; takes as long as that takes. Raises ``SettingsError`` when the settings make it impossible."""
    if settings.simulated:
        return SimulatedRunner(_simulated_info(settings), step_seconds=settings.simulated_step_ms / 1000.0)
    wait_politely()
    # Imported here because only real weights need torch.
    from engine_svc.execution.model_runner import load_model_runner

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
    )


def _simulated_info(settings: Settings) -> RunnerInfo:
    vocabulary = load_vocabulary(settings.tokenizer)
    bytes_per_block = settings.block_size * _SIMULATED_BYTES_PER_TOKEN
    return RunnerInfo(
        model_path=MODEL_NAME,
        model_type=MODEL_NAME,
        dtype="float32",
        vocab_size=vocabulary.size,
        max_model_len=settings.max_model_len or _SIMULATED_CONTEXT,
        num_blocks=settings.num_blocks or max(1, settings.kv_cache_memory_mb * _MIB // bytes_per_block),
        eos_token_ids=vocabulary.eos_token_ids,
        simulated=True,
    )
