"""The interface between models and attention backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """The attention of a model. ``windows`` are the sliding windows, one entry per layer.

    With a window, a token attends to itself and the ``window - 1`` tokens before it; with None, to all tokens before
    it.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    windows: tuple[int | None, ...]
    scale: float | None = None
    """Factor of the scores (products of queries and keys); None is ``1 / sqrt(head_dim)``"""
    softcap: float | None = None
    """Soft cap of the scaled scores, as in ``engine_svc.layers.activation.softcap``"""
    int8_cache: bool = False
    """Keys and values are stored in int8, each with a float32 scale per token and KV head (absmax / 127)"""

    @property
    def num_layers(self) -> int:
        return len(self.windows)

    @property
    def cache_dtype(self) -> torch.dtype:
        """Element type of the KV cache"""
        return torch.int8 if self.int8_cache else self.dtype

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of the KV cache per token, over all layers."""
        scale_bytes = torch.float32.itemsize if self.int8_cache else 0
        head_bytes = self.head_dim * self.cache_dtype.itemsize + scale_bytes
        return 2 * self.num_layers * self.num_kv_heads * head_bytes


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """Attention metadata of one step: several sequences, concatenated in one flat batch.

    The queries of sequence i are tokens ``query_starts[i]`` to ``query_starts[i + 1]``; they are the last of the
    ``context_lens[i]`` tokens of the sequence. Token t of a sequence is stored in slot ``t % block_size`` of block
    ``block_tables[i, t // block_size]``; block tables are padded with zeros on the right.
    """

    slot_mapping: Tensor
    """Flat slot of each new token, ``block * block_size + slot``, int64 [tokens]"""
    query_starts: Tensor
    """int32 [sequences + 1]"""
    context_lens: Tensor
    """int32 [sequences]"""
    block_tables: Tensor
    """int32 [sequences, maximum blocks]"""


class AttentionStep(Protocol):
    """Attention within one step."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write the new keys and values to the KV cache, then attend causally to all tokens of each sequence.

        ``query`` [tokens, heads, head_dim], ``key`` and ``value`` [tokens, kv_heads, head_dim]
        -> [tokens, heads, head_dim]
        """


class AttentionBackend(Protocol):
    """Owns the paged KV cache and computes attention over it."""

    def begin(self, batch: PagedBatch) -> AttentionStep:
        """Prepare the state that all layers of a step share."""
