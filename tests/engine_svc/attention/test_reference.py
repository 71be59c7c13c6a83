from __future__ import annotations

import dataclasses
from itertools import cycle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_svc.attention import reference
from engine_svc.attention.interface import AttentionConfig
from engine_svc.attention.reference import ReferenceAttention
from tests.engine_svc.attention.paged import BLOCK_SIZE, NUM_BLOCKS, History, attend, config, histories


def new_backend(config: AttentionConfig, *, batch_invariant: bool = False) -> ReferenceAttention:
    """A backend whose cache is filled with NaN, which must never be read."""
    backend = ReferenceAttention(config, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, batch_invariant=batch_invariant)
    for cache in backend.cache:
        cache.fill_(torch.nan if cache.is_floating_point() else 77)
    for scales in backend.scales:
        scales.fill_(torch.nan)
    return backend


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    chunks=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    group=st.sampled_from([1, 2, 3]),
    head_dim=st.sampled_from([2, 6, 8]),
    window=st.sampled_from([None, 1, 3, 5, 100]),
    scale=st.sampled_from([None, 1.0]),
    softcap=st.sampled_from([None, 1.5]),
    batch_invariant=st.booleans(),
    int8_cache=st.booleans(),
)
def test_any_chunking_equals_naive_causal_attention(
    lengths: list[int],
    chunks: list[int],
    group: int,
    head_dim: int,
    window: int | None,
    scale: float | None,
    softcap: float | None,
    batch_invariant: bool,
    int8_cache: bool,
) -> None:
    shape = config(2 * group, 2, head_dim, window, scale=scale, softcap=softcap, int8_cache=int8_cache)
    sequences = histories(shape, lengths)
    backend = new_backend(shape, batch_invariant=batch_invariant)
    sizes = cycle(chunks)
    computed = [0] * len(sequences)

    while any(done < len(history.query) for done, history in zip(computed, sequences, strict=True)):
        ends = [min(len(history.query), done + next(sizes)) for done, history in zip(computed, sequences, strict=True)]
        planned = zip(sequences, computed, ends, strict=True)
        runs = [(history, start, end) for history, start, end in planned if end > start]
        for out, (history, start, end) in zip(attend(backend, runs) if runs else [], runs, strict=True):
            # An element between two integers may be rounded to the other one than in float64.
            tolerance = 1e-2 if int8_cache else 1e-5
            expected = history.naive(start, end, shape)
            torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
        computed = ends


@pytest.mark.parametrize("window", [None, 50])
def test_long_runs_are_split_exactly(window: int | None) -> None:
    shape = config(window=window)
    (history,) = histories(shape, [2 * reference._MAX_QUERIES - 20])
    middle = len(history.query) // 3
    backend = new_backend(shape)

    outs = attend(backend, [(history, 0, middle)]) + attend(backend, [(history, middle, len(history.query))])

    expected = history.naive(0, len(history.query), shape)
    torch.testing.assert_close(torch.cat(outs).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("int8_cache", [False, True])
def test_batch_invariant_mode_is_exact_for_any_steps_and_threads(
    dtype: torch.dtype, softcap: float | None, int8_cache: bool
) -> None:
    shape = config(6, 2, 80, window=70, dtype=dtype, softcap=softcap, int8_cache=int8_cache)
    first, second = histories(shape, [120, 37])
    before = torch.get_num_threads()

    def attended(num_threads: int, *steps: list[tuple[History, int, int]]) -> torch.Tensor:
        torch.set_num_threads(num_threads)
        backend = new_backend(shape, batch_invariant=True)
        return torch.cat([attend(backend, runs)[-1] for runs in steps])

    try:
        whole = attended(1, [(first, 0, 120)])
        cut = attended(2, [(first, 0, 1)], [(second, 0, 37), (first, 1, 64)], [(first, 64, 119)], [(first, 119, 120)])
    finally:
        torch.set_num_threads(before)

    assert torch.equal(whole, cut)


def test_layers_have_separate_caches() -> None:
    shape = config()
    first, second = histories(shape, [6], seed=1)[0], histories(shape, [6], seed=2)[0]
    second.blocks = first.blocks
    backend = new_backend(shape)

    attend(backend, [(first, 0, 5)], layer=0)
    attend(backend, [(second, 0, 5)], layer=1)
    (out,) = attend(backend, [(first, 5, 6)], layer=0)

    torch.testing.assert_close(out.double(), first.naive(5, 6, shape), rtol=1e-5, atol=1e-5)


def test_each_layer_has_its_own_window() -> None:
    shape = dataclasses.replace(config(), windows=(None, 3))
    (history,) = histories(shape, [12])
    backend = new_backend(shape)

    for layer in range(2):
        (out,) = attend(backend, [(history, 0, 12)], layer)
        torch.testing.assert_close(out.double(), history.naive(0, 12, shape, layer), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_output_does_not_depend_on_other_sequences(dtype: torch.dtype, softcap: float | None) -> None:
    shape = config(dtype=dtype, softcap=softcap)
    sequences = histories(shape, [30, 7, 19, 1])
    alone = [attend(new_backend(shape), [(history, 0, len(history.query))])[0] for history in sequences]

    together = attend(new_backend(shape), [(history, 0, len(history.query)) for history in sequences])

    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


@pytest.mark.parametrize("int8_cache", [False, True])
def test_stale_nan_in_a_reused_block_is_never_read(int8_cache: bool) -> None:
    shape = config(int8_cache=int8_cache)
    stale, fresh = histories(shape, [8, 5])
    for part in (stale.query, stale.key, stale.value):
        part.fill_(torch.nan)
    fresh.blocks = stale.blocks
    backend = new_backend(shape)

    (nan,) = attend(backend, [(stale, 0, 8)])
    (out,) = attend(backend, [(fresh, 0, 5)])

    tolerance = 1e-2 if int8_cache else 1e-5
    assert nan.isnan().all()
    torch.testing.assert_close(out.double(), fresh.naive(0, 5, shape), rtol=tolerance, atol=tolerance)


def test_sequences_can_share_prefix_blocks() -> None:
    shape = config()
    first, second = histories(shape, [10, 12])
    second.key[:8], second.value[:8] = first.key[:8], first.value[:8]
    second.blocks[:2] = first.blocks[:2]
    backend = new_backend(shape)
    attend(backend, [(first, 0, 10)])

    (out,) = attend(backend, [(second, 8, 12)])

    torch.testing.assert_close(out.double(), second.naive(8, 12, shape), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_int8_cache_is_close_to_the_exact_one(dtype: torch.dtype) -> None:
    shape = config(head_dim=64, dtype=dtype, int8_cache=True)
    (history,) = histories(shape, [60])

    (out,) = attend(new_backend(shape), [(history, 0, 60)])

    exact = history.naive(0, 60, dataclasses.replace(shape, int8_cache=False))
    assert out.dtype == dtype
    assert 0 < float((out.double() - exact).norm() / exact.norm()) < 0.01


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_rows_with_bad_numbers_have_no_scale(bad: float) -> None:
    integers, scales = reference.quantize_rows(torch.tensor([[1.0, -127.0], [bad, 1.0], [0.0, 0.0], [1e-38, 0.0]]))

    assert integers.tolist() == [[1, -127], [0, 0], [0, 0], [0, 0]]
    assert scales[0] == 1
    assert scales[1].isnan()
    assert (scales[2:] < 1e-30).all()


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_bfloat16_is_close_to_float64(softcap: float | None) -> None:
    shape = config(dtype=torch.bfloat16, softcap=softcap)
    (history,) = histories(shape, [40])

    (out,) = attend(new_backend(shape), [(history, 0, 40)])

    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), history.naive(0, 40, shape), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("int8_cache", [False, True])
def test_kv_cache_bytes_per_token(int8_cache: bool) -> None:
    shape = config(kv_heads=3, head_dim=64, dtype=torch.bfloat16, int8_cache=int8_cache)
    backend = ReferenceAttention(shape, num_blocks=5, block_size=BLOCK_SIZE)

    assert sum(tensor.nbytes for tensor in backend.cache + backend.scales) == 5 * BLOCK_SIZE * shape.kv_bytes_per_token
