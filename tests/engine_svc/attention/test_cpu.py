"""The kernel equals naive attention, and is bit-for-bit equal for any schedule, block size and number of threads."""

from __future__ import annotations

import dataclasses
import inspect
import re
from itertools import cycle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine_svc.attention import cpu
from engine_svc.attention.cpu import CpuAttention
from engine_svc.attention.interface import AttentionConfig
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.kernels.library import Kernels
from tests.engine_svc.attention.paged import BLOCK_SIZE, NUM_BLOCKS, History, attend, config, histories

DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
INT8_TOLERANCE = TOLERANCE | {torch.float32: 1e-2}
"""An element between two integers may be rounded to the other one than in float64."""


def new_backend(
    kernels: Kernels, config: AttentionConfig, *, block_size: int = BLOCK_SIZE, num_blocks: int = NUM_BLOCKS
) -> CpuAttention:
    """A backend whose cache is filled with NaN, which must never be read."""
    backend = CpuAttention(config, kernels, num_blocks=num_blocks, block_size=block_size)
    backend.cache.data.view(torch.uint8).fill_(0xFF)  # NaN in every floating-point type
    return backend


def in_steps(
    kernels: Kernels, shape: AttentionConfig, sequences: list[History], chunks: list[int], block_size: int
) -> list[Tensor]:
    """All sequences to their ends, batched, in chunks of these lengths."""
    num_blocks = 1 + max(block for history in sequences for block in history.blocks)
    backend = new_backend(kernels, shape, block_size=block_size, num_blocks=num_blocks)
    sizes, computed = cycle(chunks), [0] * len(sequences)
    found: list[list[Tensor]] = [[] for _ in sequences]
    while True:
        runs = [
            (index, done, min(len(sequences[index].query), done + next(sizes))) for index, done in enumerate(computed)
        ]
        runs = [(index, start, end) for index, start, end in runs if end > start]
        if not runs:
            return [torch.cat(outs) for outs in found]
        outs = attend(backend, [(sequences[index], s, e) for index, s, e in runs], block_size=block_size)
        for (index, _, end), out in zip(runs, outs, strict=True):
            found[index].append(out)
            computed[index] = end


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=3),
    chunks=st.lists(st.integers(1, 90), min_size=1, max_size=5),
    group=st.sampled_from([1, 2, 3, 5]),
    head_dim=st.sampled_from([2, 6, 16, 32, 80]),
    window=st.sampled_from([None, 1, 3, 33, 70, 1000]),
    block_size=st.sampled_from([1, 3, 4, 16, 32, 128]),
    dtype=st.sampled_from(DTYPES),
    softcap=st.sampled_from([None, 2.0]),
    int8_cache=st.booleans(),
)
def test_any_chunking_equals_naive_causal_attention(
    kernels: Kernels,
    lengths: list[int],
    chunks: list[int],
    group: int,
    head_dim: int,
    window: int | None,
    block_size: int,
    dtype: torch.dtype,
    softcap: float | None,
    int8_cache: bool,
) -> None:
    shape = config(2 * group, 2, head_dim, window, dtype, softcap=softcap, int8_cache=int8_cache)
    num_blocks = sum(-(-length // block_size) for length in lengths) + 2
    sequences = histories(shape, lengths, block_size=block_size, num_blocks=num_blocks)

    outs = in_steps(kernels, shape, sequences, chunks, block_size)

    for out, history in zip(outs, sequences, strict=True):
        expected = history.naive(0, len(history.query), shape)
        tolerance = INT8_TOLERANCE if int8_cache else TOLERANCE
        torch.testing.assert_close(out.double(), expected, rtol=tolerance[dtype], atol=tolerance[dtype])


@settings(max_examples=40)
@given(
    chunks=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    num_others=st.integers(0, 3),
    block_size=st.sampled_from([1, 5, 16, 64, 128]),
    group=st.sampled_from([1, 3, 4, 7]),
    window=st.sampled_from([None, 50]),
    dtype=st.sampled_from(DTYPES),
    num_threads=st.integers(1, 3),
    int8_cache=st.booleans(),
)
def test_batch_invariant(
    kernels: Kernels,
    chunks: list[int],
    num_others: int,
    block_size: int,
    group: int,
    window: int | None,
    dtype: torch.dtype,
    num_threads: int,
    int8_cache: bool,
) -> None:
    """For any chunks, other sequences, block sizes, block positions and numbers of threads."""
    shape = config(2 * group, 2, 16, window, dtype, int8_cache=int8_cache)
    (alone,) = histories(shape, [200], block_size=16, num_blocks=13)
    (expected,) = in_steps(kernels, shape, [alone], [200], 16)
    lengths = [200, 70, 130, 9][: 1 + num_others]
    others = histories(shape, lengths, block_size=block_size, num_blocks=1 + sum(lengths))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(num_threads)
        out, *_ = in_steps(kernels, shape, others, chunks, block_size)
    finally:
        torch.set_num_threads(before)

    assert torch.equal(alone.query, others[0].query)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("int8_cache", [False, True])
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_equals_the_reference(kernels: Kernels, head_dim: int, window: int | None, int8_cache: bool) -> None:
    """The reference rounds to the same integers."""
    shape = config(9, 3, head_dim, window, int8_cache=int8_cache)
    sequences = histories(shape, [300, 1, 64, 65], block_size=16)
    runs = [(history, 0, len(history.query)) for history in sequences]
    reference = ReferenceAttention(shape, num_blocks=NUM_BLOCKS, block_size=16)

    outs = attend(new_backend(kernels, shape, block_size=16), runs, block_size=16)

    for out, expected in zip(outs, attend(reference, runs, block_size=16), strict=True):
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_of_the_configuration(kernels: Kernels, dtype: torch.dtype) -> None:
    shape = config(dtype=dtype, scale=0.75, softcap=1.5)
    (history,) = histories(shape, [40])

    (out,) = attend(new_backend(kernels, shape), [(history, 0, 40)])

    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(out.double(), history.naive(0, 40, shape), rtol=tolerance, atol=tolerance)


def test_layers_have_separate_caches_and_windows(kernels: Kernels) -> None:
    shape = dataclasses.replace(config(), windows=(None, 3))
    sequences = [histories(shape, [6], seed=layer)[0] for layer in range(2)]
    sequences[1].blocks = sequences[0].blocks
    backend = new_backend(kernels, shape)
    for layer, history in enumerate(sequences):
        attend(backend, [(history, 0, 5)], layer)

    for layer, history in enumerate(sequences):
        (out,) = attend(backend, [(history, 5, 6)], layer)
        torch.testing.assert_close(out.double(), history.naive(5, 6, shape, layer), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("int8_cache", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [4, 16])
def test_stale_nan_in_a_reused_block_is_never_read(
    kernels: Kernels, block_size: int, dtype: torch.dtype, int8_cache: bool
) -> None:
    shape = config(head_dim=16, dtype=dtype, int8_cache=int8_cache)
    stale, fresh = histories(shape, [40, 21], block_size=block_size)
    for part in (stale.query, stale.key, stale.value):
        part.fill_(torch.nan)
    fresh.blocks = stale.blocks
    backend = new_backend(kernels, shape, block_size=block_size)

    (nan,) = attend(backend, [(stale, 0, 40)], block_size=block_size)
    (out,) = attend(backend, [(fresh, 0, 21)], block_size=block_size)

    assert nan.isnan().all()
    tolerance = (INT8_TOLERANCE if int8_cache else TOLERANCE)[dtype]
    torch.testing.assert_close(out.double(), fresh.naive(0, 21, shape), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("part", ["key", "value"])
def test_an_int8_cache_does_not_make_bad_numbers_finite(kernels: Kernels, part: str, bad: float) -> None:
    shape = config(head_dim=16, dtype=torch.bfloat16, int8_cache=True)
    (history,) = histories(shape, [70])
    getattr(history, part)[40, 1, 5] = bad

    (out,) = attend(new_backend(kernels, shape), [(history, 0, 70)])

    heads = out.view(70, 2, -1)  # of the KV head
    assert heads[:, 0].isfinite().all()
    assert heads[:40, 1].isfinite().all()
    assert heads[40:, 1].isnan().all()


def test_an_int8_cache_keeps_rows_of_any_size(kernels: Kernels) -> None:
    """Each token and head has a scale of its own; keys of zeros have none."""
    shape = config(int8_cache=True)
    (history,) = histories(shape, [30])
    history.value *= torch.logspace(-6, 6, 30)[:, None, None]
    history.key[::3] = 0

    (out,) = attend(new_backend(kernels, shape), [(history, 0, 30)])

    expected = history.naive(0, 30, shape)
    largest = history.value.double().abs().amax((1, 2)).cummax(0).values[:, None, None]
    torch.testing.assert_close(out.double() / largest, expected / largest, rtol=0, atol=1e-2)


@pytest.mark.parametrize("int8_cache", [False, True])
def test_sequences_can_share_prefix_blocks(kernels: Kernels, int8_cache: bool) -> None:
    shape = config(int8_cache=int8_cache)
    first, second = histories(shape, [10, 12])
    second.key[:8], second.value[:8] = first.key[:8], first.value[:8]
    second.blocks[:2] = first.blocks[:2]
    backend = new_backend(kernels, shape)
    attend(backend, [(first, 0, 10)])

    (out,) = attend(backend, [(second, 8, 12)])

    (alone,) = attend(new_backend(kernels, shape), [(second, 0, 12)])
    assert torch.equal(out, alone[8:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_scores(kernels: Kernels, dtype: torch.dtype) -> None:
    """One key has all the weight; sums neither overflow nor underflow."""
    shape = config(dtype=dtype)
    (history,) = histories(shape, [200])
    history.query *= 100
    history.key *= 100

    (out,) = attend(new_backend(kernels, shape), [(history, 0, 200)])

    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(out.double(), history.naive(0, 200, shape), rtol=tolerance, atol=tolerance)


def test_every_field_of_the_configuration_is_passed_to_the_kernel() -> None:
    read = set(re.findall(r"config\.(\w+)", inspect.getsource(cpu)))

    assert {field.name for field in dataclasses.fields(AttentionConfig)} <= read


@pytest.mark.parametrize(("block_size", "head_dim", "extra"), [(16, 64, 0), (1, 7, 2), (5, 64, 0)])
def test_kv_cache_bytes_per_token_of_int8(kernels: Kernels, block_size: int, head_dim: int, extra: int) -> None:
    """Blocks are padded to whole words."""
    shape = config(kv_heads=2, head_dim=head_dim, int8_cache=True)
    backend = CpuAttention(shape, kernels, num_blocks=5, block_size=block_size)

    heads = 2 * shape.num_layers
    assert shape.kv_bytes_per_token == heads * 2 * (head_dim + 4)
    assert backend.cache.data.nbytes == 5 * (block_size * shape.kv_bytes_per_token + extra * heads)


@pytest.mark.parametrize(("block_size", "extra"), [(4, 0), (5, 1)])
def test_kv_cache_bytes_per_token(kernels: Kernels, block_size: int, extra: int) -> None:
    """An odd block size of bfloat16 is padded by one value."""
    shape = config(kv_heads=2, head_dim=64, dtype=torch.bfloat16)
    backend = CpuAttention(shape, kernels, num_blocks=5, block_size=block_size)

    assert 2 * backend.cache.data.nbytes == 5 * (2 * block_size + extra) * shape.kv_bytes_per_token
