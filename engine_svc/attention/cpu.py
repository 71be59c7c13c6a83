"""Attention by the compiled kernel: one pass over the cache blocks, for any mix of prefill and decode.

It is batch-invariant: the output for a sequence depends on its own tokens only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from engine_svc.attention.interface import AttentionConfig, PagedBatch
from engine_svc.kernels.library import Kernels
from engine_svc.kernels.memory import huge_pages
from engine_svc.kernels.structures import AttentionShape, Batch

_WORD_BYTES: Final = 4


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
            is_int8_cache=config.int8_cache,
            num_threads=torch.get_num_threads(),
        )
        layer_bytes = num_blocks * config.num_kv_heads * _head_bytes(config, block_size)
        data = huge_pages(config.num_layers * layer_bytes).view(config.num_layers, layer_bytes)
        self.data = data.view(config.cache_dtype)
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
    return _WORD_BYTES // dtype.itemsize


def _head_bytes(config: AttentionConfig, block_size: int) -> int:
    """Size of a block of one KV head, as in ``csrc/kv_cache.h``

    Words of 4 bytes hold values of two tokens in bfloat16, and scales are aligned, so odd sizes are rounded up.
    """
    if config.int8_cache:
        return -(-2 * block_size * (config.head_dim + torch.float32.itemsize) // _WORD_BYTES) * _WORD_BYTES
    per_word = _per_word(config.dtype)
    value_slots = -(-block_size // per_word) * per_word
    return (block_size + value_slots) * config.head_dim * config.dtype.itemsize


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
