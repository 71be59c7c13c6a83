"""From settings to the simulated model."""

from __future__ import annotations

from typing import Final

from engine_svc.runners.interface import RunnerInfo
from engine_svc.runners.simulated.runner import SimulatedRunner
from engine_svc.runners.simulated.vocabulary import load_vocabulary
from protos.simulated import MODEL_NAME

_CONTEXT: Final = 8192
_BYTES_PER_TOKEN: Final = 8192
"""Pretended size of a token in the KV cache, so that the memory settings have their usual effect"""


def load_simulated(
    *,
    tokenizer: str,
    max_model_len: int | None,
    block_size: int,
    kv_cache_bytes: int,
    num_blocks: int | None,
    step_seconds: float,
) -> SimulatedRunner:
    """``tokenizer`` as in ``vocabulary.py``. Raises ``SettingsError`` if it cannot be read."""
    vocabulary = load_vocabulary(tokenizer)
    info = RunnerInfo(
        model_path=MODEL_NAME,
        model_type=MODEL_NAME,
        dtype="float32",
        cache_dtype="float32",
        vocab_size=vocabulary.size,
        max_model_len=max_model_len or _CONTEXT,
        num_blocks=num_blocks or max(1, kv_cache_bytes // (block_size * _BYTES_PER_TOKEN)),
        eos_token_ids=vocabulary.eos_token_ids,
        simulated=True,
    )
    return SimulatedRunner(info, step_seconds=step_seconds)
