from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine_svc.attention import reference
from engine_svc.attention.interface import AttentionConfig, PagedBatch
from engine_svc.attention.reference import ReferenceAttention

BLOCK_SIZE = 4
NUM_BLOCKS = 64


def config(
    heads: int = 4, kv_heads: int = 2, head_dim: int = 8, window: int | None = None, dtype: torch.dtype = torch.float32
) -> AttentionConfig:
    return AttentionConfig(heads, kv_heads, head_dim, dtype, (window, window))


@dataclass
class History:
    """Everything one sequence ever computes, and the blocks it has."""

    query: Tensor
    key: Tensor
    value: Tensor
    blocks: list[int]

    def naive(self, start: int, end: int, config: AttentionConfig) -> Tensor:
        """Attention of tokens ``start`` to ``end``, one by one and head by head, in float64."""
        out = torch.empty(end - start, config.num_heads, config.head_dim, dtype=torch.float64)
        for token in range(start, end):
            window = config.windows[0]
            first = 0 if window is None else max(0, token - window + 1)
            for head in range(config.num_heads):
                kv_head = head * config.num_kv_heads // config.num_heads
                keys = self.key[first : token + 1, kv_head].double()
                scores = keys @ self.query[token, head].double() / config.head_dim**0.5
                out[token - start, head] = scores.softmax(0) @ self.value[first : token + 1, kv_head].double()
        return out


def histories(config: AttentionConfig, lengths: list[int], seed: int = 0) -> list[History]:
    """Random sequences, their blocks strewn over the cache."""
    generator = torch.Generator().manual_seed(seed)
    free = torch.randperm(NUM_BLOCKS, generator=generator).tolist()

    def random(length: int, heads: int) -> Tensor:
        return torch.randn(length, heads, config.head_dim, generator=generator).to(config.dtype)

    made = []
    for length in lengths:
        blocks = [free.pop() for _ in range(-(-length // BLOCK_SIZE))]
        heads, kv_heads = config.num_heads, config.num_kv_heads
        made.append(History(random(length, heads), random(length, kv_heads), random(length, kv_heads), blocks))
    return made


def attend(backend: ReferenceAttention, runs: list[tuple[History, int, int]], layer: int = 0) -> list[Tensor]:
    """One step over tokens ``start`` to ``end`` of each sequence."""
    widest = max(len(history.blocks) for history, _, _ in runs)
    slots = [
        history.blocks[t // BLOCK_SIZE] * BLOCK_SIZE + t % BLOCK_SIZE for history, s, e in runs for t in range(s, e)
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


def new_backend(config: AttentionConfig) -> ReferenceAttention:
    """A backend whose cache is full of what nobody may ever see."""
    backend = ReferenceAttention(config, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
    for cache in backend.cache:
        cache.fill_(torch.nan)
    return backend


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    chunks=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    group=st.sampled_from([1, 2, 3]),
    head_dim=st.sampled_from([2, 6, 8]),
    window=st.sampled_from([None, 1, 3, 5, 100]),
)
def test_any_cut_into_steps_gives_plain_causal_attention(
    lengths: list[int], chunks: list[int], group: int, head_dim: int, window: int | None
) -> None:
    shape = config(2 * group, 2, head_dim, window)
    sequences = histories(shape, lengths)
    backend = new_backend(shape)
    sizes = cycle(chunks)
    computed = [0] * len(sequences)

    while any(done < len(history.query) for done, history in zip(computed, sequences, strict=True)):
        ends = [min(len(history.query), done + next(sizes)) for done, history in zip(computed, sequences, strict=True)]
        planned = zip(sequences, computed, ends, strict=True)
        runs = [(history, start, end) for history, start, end in planned if end > start]
        for out, (history, start, end) in zip(attend(backend, runs) if runs else [], runs, strict=True):
            torch.testing.assert_close(out.double(), history.naive(start, end, shape), rtol=1e-5, atol=1e-5)
        computed = ends


@pytest.mark.parametrize("window", [None, 50])
def test_long_runs_are_cut_without_a_trace(window: int | None) -> None:
    shape = config(window=window)
    (history,) = histories(shape, [2 * reference._MAX_QUERIES - 20])
    middle = len(history.query) // 3
    backend = new_backend(shape)

    outs = attend(backend, [(history, 0, middle)]) + attend(backend, [(history, middle, len(history.query))])

    expected = history.naive(0, len(history.query), shape)
    torch.testing.assert_close(torch.cat(outs).double(), expected, rtol=1e-5, atol=1e-5)


def test_layers_have_caches_of_their_own() -> None:
    shape = config()
    first, second = histories(shape, [6], seed=1)[0], histories(shape, [6], seed=2)[0]
    second.blocks = first.blocks
    backend = new_backend(shape)

    attend(backend, [(first, 0, 5)], layer=0)
    attend(backend, [(second, 0, 5)], layer=1)
    (out,) = attend(backend, [(first, 5, 6)], layer=0)

    torch.testing.assert_close(out.double(), first.naive(5, 6, shape), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neighbours_change_nothing_to_the_last_bit(dtype: torch.dtype) -> None:
    shape = config(dtype=dtype)
    sequences = histories(shape, [30, 7, 19, 1])
    alone = [attend(new_backend(shape), [(history, 0, len(history.query))])[0] for history in sequences]

    together = attend(new_backend(shape), [(history, 0, len(history.query)) for history in sequences])

    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_what_a_broken_sequence_left_in_a_block_is_never_seen() -> None:
    shape = config()
    broken, healthy = histories(shape, [8, 5])
    for part in (broken.query, broken.key, broken.value):
        part.fill_(torch.nan)
    healthy.blocks = broken.blocks
    backend = new_backend(shape)

    (nan,) = attend(backend, [(broken, 0, 8)])
    (out,) = attend(backend, [(healthy, 0, 5)])

    assert nan.isnan().all()
    torch.testing.assert_close(out.double(), healthy.naive(0, 5, shape), rtol=1e-5, atol=1e-5)


def test_sequences_may_share_the_blocks_of_a_common_prefix() -> None:
    shape = config()
    first, second = histories(shape, [10, 12])
    second.key[:8], second.value[:8] = first.key[:8], first.value[:8]
    second.blocks[:2] = first.blocks[:2]
    backend = new_backend(shape)
    attend(backend, [(first, 0, 10)])

    (out,) = attend(backend, [(second, 8, 12)])

    torch.testing.assert_close(out.double(), second.naive(8, 12, shape), rtol=1e-5, atol=1e-5)


def test_bfloat16_is_near_the_truth() -> None:
    shape = config(dtype=torch.bfloat16)
    (history,) = histories(shape, [40])

    (out,) = attend(new_backend(shape), [(history, 0, 40)])

    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), history.naive(0, 40, shape), rtol=2e-2, atol=2e-2)


def test_the_size_of_a_token_in_the_cache() -> None:
    shape = config(kv_heads=3, head_dim=64, dtype=torch.bfloat16)
    backend = ReferenceAttention(shape, num_blocks=5, block_size=BLOCK_SIZE)

    assert sum(cache.nbytes for cache in backend.cache) == 5 * BLOCK_SIZE * shape.kv_bytes_per_token
