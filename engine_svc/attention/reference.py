"""Attention in plain torch: the reference for other backends.

Each sequence is computed separately, over exactly its own keys. So the result does not depend on the rest of the batch,
nothing is computed for padding, and stale contents of a reused block, NaN included, are never read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_svc.attention.interface import AttentionConfig, PagedBatch
from engine_svc.layers.activation import softcap

_MAX_QUERIES: Final = 128
"""Query tokens of a sequence per call; bounds the size of the mask, and the work on masked keys."""

_MIN_SCALE: Final = 2.0**-100


class ReferenceAttention:
    """The reference backend (see ``engine_svc.attention.interface.AttentionBackend``)."""

    def __init__(
        self, config: AttentionConfig, *, num_blocks: int, block_size: int, batch_invariant: bool = False
    ) -> None:
        """With ``batch_invariant`` each token is computed in separate calls, which do not depend on the batch."""
        self.config = config
        self.block_size = block_size
        self.max_queries = 1 if batch_invariant else _MAX_QUERIES
        self.attention = _summed_attention if batch_invariant else _attention
        shape = (num_blocks * block_size, 2, config.num_kv_heads, config.head_dim)
        self.cache = [torch.empty(shape, dtype=config.cache_dtype) for _ in range(config.num_layers)]
        """Per layer, keys and values in one tensor, so that one gather reads both."""
        scales = (*shape[:3], 1) if config.int8_cache else (0,)
        self.scales = [torch.empty(scales, dtype=torch.float32) for _ in range(config.num_layers)]
        """Per layer, factors of the elements of an int8 cache"""

    def begin(self, batch: PagedBatch) -> ReferenceStep:
        starts, lens = batch.query_starts.tolist(), batch.context_lens.tolist()
        sequences = zip(starts, starts[1:], lens, batch.block_tables, strict=False)
        return ReferenceStep(self, batch.slot_mapping, [span for given in sequences for span in self._spans(*given)])

    def _spans(self, start: int, end: int, context_len: int, table: Tensor) -> Iterator[_Span]:
        """Tokens ``start`` to ``end`` of one sequence, split so that little work is spent on masked keys."""
        for first in range(start, end, self.max_queries):
            last = min(first + self.max_queries, end)
            num_keys = context_len - (end - last)
            yield _Span(first, last, num_keys, table[: -(-num_keys // self.block_size)])


@dataclass(frozen=True, slots=True)
class _Span:
    """Tokens ``start`` to ``end`` of the batch: the last of the first ``num_keys`` tokens of their sequence."""

    start: int
    end: int
    num_keys: int
    blocks: Tensor

    def bias(self, config: AttentionConfig, window: int | None) -> Tensor | None:
        """The attention mask: -inf for masked keys [queries * group, keys]; None if no key is masked."""
        num_queries = self.end - self.start
        if num_queries == 1 and (window is None or self.num_keys <= window):
            return None
        query = torch.arange(self.num_keys - num_queries, self.num_keys)[:, None]
        key = torch.arange(self.num_keys)
        masked = key > query if window is None else (key > query) | (key <= query - window)
        dtype = torch.float32 if config.int8_cache else config.dtype
        bias = torch.zeros(masked.shape, dtype=dtype).masked_fill_(masked, float("-inf"))
        return bias.repeat_interleave(config.num_heads // config.num_kv_heads, dim=0)


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """See ``engine_svc.attention.interface.AttentionStep``."""

    backend: ReferenceAttention
    slot_mapping: Tensor
    spans: list[_Span]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self._put(layer, torch.stack((key, value), dim=1))
        out = torch.empty_like(query)
        for span in self.spans:
            out[span.start : span.end] = self._attend_one(layer, query[span.start : span.end], span)
        return out

    def _put(self, layer: int, added: Tensor) -> None:
        """Write keys and values [tokens, 2, kv_heads, head_dim] to the cache."""
        if self.backend.config.int8_cache:
            added, scales = quantize_rows(added)
            self.backend.scales[layer].index_copy_(0, self.slot_mapping, scales)
        self.backend.cache[layer].index_copy_(0, self.slot_mapping, added)

    def _read(self, layer: int, span: _Span) -> Tensor:
        """Keys and values of a sequence [keys, 2, kv_heads, head_dim], in float32 from an int8 cache"""
        found = self._gather(self.backend.cache[layer], span)
        return found * self._gather(self.backend.scales[layer], span) if self.backend.config.int8_cache else found

    def _gather(self, cache: Tensor, span: _Span) -> Tensor:
        """[slots, ...] -> [keys, ...]"""
        pages = cache.view(-1, self.backend.block_size, *cache.shape[1:]).index_select(0, span.blocks)
        return pages.flatten(0, 1)[: span.num_keys]

    def _attend_one(self, layer: int, query: Tensor, span: _Span) -> Tensor:
        """[queries, heads, head_dim] -> [queries, heads, head_dim]

        The query heads of a KV head are computed as additional queries of it.
        """
        config = self.backend.config
        num_queries, num_heads, head_dim = query.shape
        keys, values = self._read(layer, span).permute(1, 2, 0, 3)  # each [kv_heads, keys, head_dim]
        # Query heads grouped by KV head: [kv_heads, queries, group, head_dim]
        grouped = query.view(num_queries, len(keys), -1, head_dim).transpose(0, 1)
        stacked = grouped.reshape(len(keys), -1, head_dim).to(keys.dtype)
        out = self.backend.attention(stacked, keys, values, span.bias(config, config.windows[layer]), config)
        return out.to(query.dtype).view(grouped.shape).transpose(0, 1).reshape(num_queries, num_heads, head_dim)


def quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise each row of the last dimension to int8: the integers, and a scale for each row, float32 [..., 1].

    The scale of a row with a NaN or an infinity is NaN. Rows whose scale is too small become zeros.
    """
    rows = rows.float()
    scales = rows.abs().amax(-1, keepdim=True) / 127
    scales = torch.where(scales.isfinite(), scales, torch.nan)
    inverse = torch.where(scales > _MIN_SCALE, 1 / scales, 0.0)
    return torch.where(scales.isnan(), 0.0, rows * inverse).round().to(torch.int8), scales


def _attention(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, config: AttentionConfig) -> Tensor:
    """[kv_heads, queries, head_dim], keys and values [kv_heads, keys, head_dim] -> [kv_heads, queries, head_dim]"""
    if config.softcap is None:
        inputs = query[None], keys[None], values[None]
        return F.scaled_dot_product_attention(*inputs, attn_mask=bias, scale=config.scale)[0]
    scale = config.head_dim**-0.5 if config.scale is None else config.scale
    scores = softcap(query @ keys.transpose(-1, -2) * scale, config.softcap)
    weights = (scores if bias is None else scores + bias).softmax(-1, dtype=torch.float32)
    return weights.to(query.dtype) @ values


def _summed_attention(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, config: AttentionConfig
) -> Tensor:
    """The same by plain sums in float32: BLAS products select the order of summation by sizes and threads."""
    scale = config.head_dim**-0.5 if config.scale is None else config.scale
    products = query.float()[:, :, None] * keys.float()[:, None]  # [kv_heads, queries, keys, head_dim]
    scores = softcap(products.sum(-1) * scale, config.softcap)
    weights = (scores if bias is None else scores + bias).softmax(-1)
    return (weights[..., None] * values.float()[:, None]).sum(-2).to(query.dtype)
