"""Sequences with known queries, keys and values, and steps of attention over a paged KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine_svc.attention.interface import AttentionBackend, AttentionConfig, PagedBatch

BLOCK_SIZE = 4
NUM_BLOCKS = 64


def config(
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 8,
    window: int | None = None,
    dtype: torch.dtype = torch.float32,
    scale: float | None = None,
    softcap: float | None = None,
    int8_cache: bool = False,
) -> AttentionConfig:
    return AttentionConfig(heads, kv_heads, head_dim, dtype, (window, window), scale, softcap, int8_cache)


@dataclass
class History:
    """All queries, keys and values of a sequence, and its blocks."""

    query: Tensor
    key: Tensor
    value: Tensor
    blocks: list[int]

    def naive(self, start: int, end: int, config: AttentionConfig, layer: int = 0) -> Tensor:
        """Attention of tokens ``start`` to ``end``, token by token and head by head, in float64."""
        out = torch.empty(end - start, config.num_heads, config.head_dim, dtype=torch.float64)
        key, value = (int8_rows(x) if config.int8_cache else x for x in (self.key, self.value))
        scale = config.head_dim**-0.5 if config.scale is None else config.scale
        for token in range(start, end):
            window = config.windows[layer]
            first = 0 if window is None else max(0, token - window + 1)
            for head in range(config.num_heads):
                kv_head = head * config.num_kv_heads // config.num_heads
                scores = key[first : token + 1, kv_head].double() @ self.query[token, head].double() * scale
                if config.softcap is not None:
                    scores = config.softcap * torch.tanh(scores / config.softcap)
                out[token - start, head] = scores.softmax(0) @ value[first : token + 1, kv_head].double()
        return out


def int8_rows(rows: Tensor) -> Tensor:
    """What an int8 cache holds of [..., head_dim], float64"""
    scales = rows.double().abs().amax(-1, keepdim=True) / 127
    return torch.where(scales > 0, (rows.double() / scales).round() * scales, 0.0)


def histories(
    config: AttentionConfig,
    lengths: list[int],
    seed: int = 0,
    *,
    block_size: int = BLOCK_SIZE,
    num_blocks: int = NUM_BLOCKS,
) -> list[History]:
    """Random sequences with blocks at random places in the cache."""
    generator = torch.Generator().manual_seed(seed)

    def random(length: int, heads: int) -> Tensor:
        return torch.randn(length, heads, config.head_dim, generator=generator).to(config.dtype)

    free = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed)).tolist()
    made = []
    for length in lengths:
        blocks = [free.pop() for _ in range(-(-length // block_size))]
        heads, kv_heads = config.num_heads, config.num_kv_heads
        made.append(History(random(length, heads), random(length, kv_heads), random(length, kv_heads), blocks))
    return made


def attend(
    backend: AttentionBackend, runs: list[tuple[History, int, int]], layer: int = 0, *, block_size: int = BLOCK_SIZE
) -> list[Tensor]:
    """One step over tokens ``start`` to ``end`` of each sequence."""
    widest = max(len(history.blocks) for history, _, _ in runs)
    slots = [
        history.blocks[t // block_size] * block_size + t % block_size for history, s, e in runs for t in range(s, e)
    ]
    counts = [end - start for _, start, end in runs]
    batch = PagedBatch(
        slot_mapping=torch.tensor(slots),
        query_starts=torch.tensor([0, *counts]).cumsum(0).int(),
        context_lens=torch.tensor([end for _, _, end in runs], dtype=torch.int32),
        block_tables=torch.tensor(
            [history.blocks + [0] * (widest - len(history.blocks)) for history, _, _ in runs], dtype=torch.int32
        ),
    )
    flat = [torch.cat([getattr(h, name)[s:e] for h, s, e in runs]) for name in ("query", "key", "value")]
    return list(backend.begin(batch).attend(layer, *flat).split(counts))
