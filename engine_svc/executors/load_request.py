"""What an executor is asked to load."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engine_svc.attention.backends import find_kernels
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
    """The Hugging Face folder that the checkpoint is, if it is one"""
    executor: str = "auto"
    """A name in ``engine_svc.executors.loading.EXECUTORS``, or ``auto``"""
    dtype: str = "auto"
    quantization: str = "auto"
    attention_backend: str = "auto"
    deterministic: bool = False

    @cached_property
    def kernels(self) -> Kernels | None:
        """The compiled kernels, where attention may use them. Looked for once, because what is missing is logged."""
        return find_kernels(self.attention_backend)
