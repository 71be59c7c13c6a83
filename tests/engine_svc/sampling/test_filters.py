from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from engine_svc.request import SamplingParams
from engine_svc.sampling import filters as module
from engine_svc.sampling.filters import filters, survivors

Row = npt.NDArray[np.float32]

PARAMS = st.builds(
    SamplingParams,
    top_k=st.sampled_from([-1, 0, 1, 2, 3, 10, 130, 1000]),
    top_p=st.sampled_from([1e-30, 0.1, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 1e-30, 0.01, 0.3, 1.0]),
)


def scores(*logits: list[float]) -> torch.Tensor:
    """Log probabilities relative to the best token."""
    values = torch.tensor(logits, dtype=torch.float32)
    return values - values.amax(dim=-1, keepdim=True)


def kept(values: torch.Tensor, *params: SamplingParams) -> list[list[int]]:
    """The ids that survive in each row, ascending."""
    rows, ids = survivors(values, params)
    assert rows.tolist() == sorted(rows.tolist())
    return [sorted(ids[rows == row].tolist()) for row in range(len(params))]


def naive(row: Row, params: SamplingParams) -> list[int]:
    """The definition: min-p, then top-k, then top-p over what is left, best first, equals by lowest id."""
    order = np.argsort(-row, kind="stable")
    probability = np.exp(row.astype(np.float64))
    left = [token for token in order if probability[token] >= params.min_p * probability[order[0]]]
    if params.top_k > 0:
        left = left[: params.top_k]
    nucleus: list[int] = []
    total, sum_before = sum(probability[left]), 0.0
    for token in left:
        if nucleus and params.top_p < 1.0 and sum_before >= params.top_p * total:
            break
        nucleus.append(int(token))
        sum_before += probability[token]
    return sorted(nucleus)


# Multiples of 1/4 have sums that stay clear of the limits, so that rounding decides nothing.
ROWS = npst.arrays(np.float32, st.integers(1, 300), elements=st.integers(-40, 0).map(lambda quarter: quarter / 4))


@settings(max_examples=100)
@given(row=ROWS, params=PARAMS)
def test_it_is_the_definition(row: Row, params: SamplingParams) -> None:
    values = scores(row.tolist())

    assert kept(values, params) == [naive(values[0].numpy(), params)]


@settings(max_examples=50)
@given(row=ROWS, params=PARAMS)
def test_the_best_token_always_survives(row: Row, params: SamplingParams) -> None:
    (ids,) = kept(scores(row.tolist()), params)

    assert int(row.argmax()) in ids


@settings(max_examples=50)
@given(
    rows=npst.arrays(np.float32, (4, 700), elements=st.floats(-12, 0, width=32)),
    params=st.tuples(PARAMS, PARAMS, PARAMS, PARAMS),
)
def test_neighbours_change_nothing(rows: Row, params: tuple[SamplingParams, ...]) -> None:
    values = scores(*rows.tolist())

    together = kept(values, *params)

    assert together == [kept(values[row : row + 1], params[row])[0] for row in range(4)]


@pytest.mark.parametrize("first_count", [1, 2, 64, 5000])
def test_how_many_are_looked_at_first_changes_nothing(first_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    values = scores(*torch.randn(5, 3000).tolist())
    params = [
        SamplingParams(top_p=0.9),
        SamplingParams(top_k=700, top_p=0.8),
        SamplingParams(min_p=0.001, top_p=0.99),
        SamplingParams(top_k=1),
        SamplingParams(min_p=0.2),
    ]
    expected = [naive(row.numpy(), p) for row, p in zip(values, params, strict=True)]

    monkeypatch.setattr(module, "_FIRST_COUNT", first_count)

    assert kept(values, *params) == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(top_k=1), [1]),
        (SamplingParams(top_k=2), [1, 2]),
        (SamplingParams(top_p=1e-300), [1]),
        (SamplingParams(top_p=0.999999), [0, 1, 2, 3]),
        (SamplingParams(min_p=1.0), [1, 3]),
        (SamplingParams(min_p=1e-300), [0, 1, 2, 3]),
    ],
)
def test_the_edges_of_each_filter(params: SamplingParams, expected: list[int]) -> None:
    values = scores([1.0, 5.0, 2.0, 5.0])
    expected = [1, 3] if params.top_k == 2 else expected

    assert kept(values, params) == [expected]


def test_top_p_stops_at_the_token_that_reaches_it() -> None:
    values = scores(np.log([0.5, 0.25, 0.125, 0.125]).tolist())

    assert kept(values, SamplingParams(top_p=0.49)) == [[0]]
    assert kept(values, SamplingParams(top_p=0.51)) == [[0, 1]]
    assert kept(values, SamplingParams(top_p=0.74)) == [[0, 1]]
    assert kept(values, SamplingParams(top_p=0.76)) == [[0, 1, 2]]


@pytest.mark.parametrize("others", [{}, {"top_k": 4}, {"min_p": 1.0}])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_top_p_that_is_reached_exactly_takes_no_more(count: int, others: dict[str, Any]) -> None:
    """Four equal tokens have probabilities of 1/4, whose sums no rounding touches."""
    values = scores([0.0, 0.0, 0.0, 0.0])

    assert kept(values, SamplingParams(top_p=count / 4, **others)) == [list(range(count))]


def test_top_p_counts_what_top_k_and_min_p_have_left() -> None:
    values = scores(np.log([0.4, 0.3, 0.2, 0.1]).tolist())

    # Of the two that are left the first has 4/7.
    assert kept(values, SamplingParams(top_k=2, top_p=0.55)) == [[0]]
    assert kept(values, SamplingParams(top_k=2, top_p=0.6)) == [[0, 1]]
    assert kept(values, SamplingParams(min_p=0.7, top_p=0.55)) == [[0]]


@pytest.mark.parametrize("top_k", [0, -1, 3, 1000])
def test_a_top_k_of_nothing_or_everything_is_no_filter(top_k: int) -> None:
    assert not filters(SamplingParams(top_k=top_k), vocab_size=3)
    assert kept(scores([1.0, 5.0, 2.0]), SamplingParams(top_k=top_k)) == [[0, 1, 2]]


@pytest.mark.parametrize("params", [SamplingParams(top_k=2), SamplingParams(top_p=0.99), SamplingParams(min_p=0.01)])
def test_what_is_a_filter(params: SamplingParams) -> None:
    assert filters(params, vocab_size=3)


@pytest.mark.parametrize("params", [SamplingParams(top_k=2), SamplingParams(top_p=0.99), SamplingParams(min_p=0.01)])
def test_impossible_tokens_survive_only_where_nothing_else_is_left(params: SamplingParams) -> None:
    (ids,) = kept(torch.tensor([[-torch.inf, 0.0, -torch.inf]]), params)

    assert 1 in ids
    assert params.top_k == 2 or ids == [1]
