"""Attention by the compiled kernel: one pass over the cache blocks, for any mix of prefill and decode.

It is batch-invariant: the output for a sequence depends on its own tokens only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine_svc.attention.interface import AttentionConfig, PagedBatch
from engine_svc.kernels.library import Kernels
from engine_svc.kernels.memory import huge_pages
from engine_svc.kernels.structures import AttentionShape, Batch


class KernelCache:
    """A paged KV cache in the layout of the kernels, and the shape of attention over it."""

    def __init__(self, config: AttentionConfig, *, num_blocks: int, block_size: int) -> None:
        self.shape = AttentionShape(
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=block_size,
            scale=config.head_dim**-0.5 if config.scale is None else config.scale,
            softcap=config.softcap or 0.0,
            is_bfloat16=config.dtype == torch.bfloat16,
            num_threads=torch.get_num_threads(),
        )
        # Values are stored in words of 4 bytes, so an odd block size of bfloat16 is rounded up.
        per_word = _per_word(config.dtype)
        value_slots = -(-block_size // per_word) * per_word
        size = num_blocks * config.num_kv_heads * (block_size + value_slots) * config.head_dim
        self.data = (
            huge_pages(config.num_layers * size * config.dtype.itemsize)
            .view(config.dtype)
            .view(config.num_layers, size)
        )
        """One row for each layer."""


def batch_structure(batch: PagedBatch) -> Batch:
    """The batch as an argument for the kernels. Holds addresses: keep ``batch`` while it is used."""
    num_sequences, table_stride = batch.block_tables.shape
    return Batch(
        batch.slot_mapping.data_ptr(),
        batch.query_starts.data_ptr(),
        batch.context_lens.data_ptr(),
        batch.block_tables.data_ptr(),
        len(batch.slot_mapping),
        num_sequences,
        table_stride,
    )


class CpuAttention:
    """See ``engine_svc.attention.interface.AttentionBackend``."""

    def __init__(self, config: AttentionConfig, kernels: Kernels, *, num_blocks: int, block_size: int) -> None:
        self.config = config
        self.kernels = kernels
        self.cache = KernelCache(config, num_blocks=num_blocks, block_size=block_size)

    def begin(self, batch: PagedBatch) -> CpuStep:
        return CpuStep(self, batch, batch_structure(batch))


def reason_against_kernel(head_dim: int, dtype: torch.dtype) -> str | None:
    """Why the kernel does not support heads of this size; None if it does."""
    if head_dim % _per_word(dtype) == 0:
        return None
    name = str(dtype).removeprefix("torch.")
    return f"head_dim must be a multiple of {_per_word(dtype)} with {name}, got {head_dim}"


def _per_word(dtype: torch.dtype) -> int:
    """Elements per word of 4 bytes, the unit in which keys and values are stored."""
    return 4 // dtype.itemsize


@dataclass(frozen=True, slots=True)
class CpuStep:
    """See ``engine_svc.attention.interface.AttentionStep``. Keeps the batch, which the kernel reads by address."""

    backend: CpuAttention
    batch: PagedBatch
    pointers: Batch

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        backend, cache = self.backend, self.backend.cache
        window = backend.config.windows[layer]
        return backend.kernels.attend(cache.shape, self.pointers, cache.data[layer], window, query, key, value)
