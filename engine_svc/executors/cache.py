"""The size of an executor's KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine_svc.weights.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """A KV cache of ``num_blocks`` blocks; ``bytes_per_token`` is the size of one token in all layers."""

    dtype: torch.dtype
    bytes_per_token: int
    block_size: int
    num_blocks: int

    @property
    def num_bytes(self) -> int:
        return self.num_blocks * self.block_size * self.bytes_per_token


@dataclass(frozen=True, slots=True)
class CacheSize:
    """The requested size: ``num_blocks`` blocks, or if None as many as fit ``num_bytes``."""

    block_size: int
    num_blocks: int | None = None
    num_bytes: int = 0

    def layout(self, dtype: torch.dtype, bytes_per_token: int) -> CacheLayout:
        """Raises ``ModelLoadError`` if the memory is less than one block."""
        return CacheLayout(dtype, bytes_per_token, self.block_size, self.num_blocks or self._fitting(bytes_per_token))

    def _fitting(self, bytes_per_token: int) -> int:
        block_bytes = self.block_size * bytes_per_token
        if self.num_bytes < block_bytes:
            raise ModelLoadError(
                f"KV cache memory of {self.num_bytes} bytes is less than one block of {block_bytes} bytes"
            )
        return self.num_bytes // block_bytes
