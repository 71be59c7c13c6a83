"""The model and settings that an executor loads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from engine_svc.attention.backends import find_kernels
from engine_svc.attention.interface import AttentionConfig
from engine_svc.executors.cache import CacheSize
from engine_svc.kernels.library import Kernels
from engine_svc.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class LoadRequest:
    """A model to load, and how.

    ``dtype`` and ``quantization`` as in ``engine_svc.models.precision``, ``attention_backend`` as in
    ``engine_svc.attention.backends``. With ``deterministic`` the executor must be batch-invariant.
    """

    checkpoint: Checkpoint
    cache: CacheSize
    folder: Path | None = None
    """The checkpoint's Hugging Face folder; None for a GGUF file"""
    executor: str = "auto"
    """A name in ``engine_svc.executors.loading.EXECUTORS``, or ``auto``"""
    dtype: str = "auto"
    quantization: str = "auto"
    attention_backend: str = "auto"
    deterministic: bool = False
    kv_cache_dtype: str = "auto"
    """``int8``, or ``auto``: the model's dtype"""

    def with_cache(self, attention: AttentionConfig) -> AttentionConfig:
        """``attention`` over the requested KV cache."""
        return replace(attention, int8_cache=self.kv_cache_dtype == "int8")

    @cached_property
    def kernels(self) -> Kernels | None:
        """The compiled kernels, if attention may use them. Looked up once, because their absence is logged."""
        return find_kernels(self.attention_backend)
