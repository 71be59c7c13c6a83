from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from engine_svc.sampling.logprobs import IMPOSSIBLE, token_logprobs


@given(
    rows=npst.arrays(
        np.float32, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=st.floats(-50, 50, width=32)
    ),
    data=st.data(),
)
def test_they_are_the_log_softmax(rows: np.ndarray[tuple[int, int], np.dtype[np.float32]], data: st.DataObject) -> None:
    vocab = rows.shape[1]
    tokens = [data.draw(st.integers(0, vocab - 1)) for _ in rows]
    num_top = [data.draw(st.integers(0, 20)) for _ in rows]

    found = token_logprobs(torch.from_numpy(rows), tokens, num_top)

    for row, token, most, logprobs in zip(rows, tokens, num_top, found, strict=True):
        expected = torch.from_numpy(row.astype(np.float64)).log_softmax(0)
        assert math.isclose(logprobs.logprob, expected[token], abs_tol=1e-4)
        best = np.argsort(-row, kind="stable")[:most].tolist()
        assert [token_id for token_id, _ in logprobs.top] == best
        assert np.allclose([value for _, value in logprobs.top], expected[best], atol=1e-4)


def test_rows_with_different_wishes() -> None:
    none, two, all_ = token_logprobs(torch.zeros(3, 5), [4, 4, 4], [0, 2, 20])

    assert none.top == ()
    assert [token for token, _ in two.top] == [0, 1]
    assert [token for token, _ in all_.top] == [0, 1, 2, 3, 4]


def test_impossible_tokens_have_a_finite_value() -> None:
    (found,) = token_logprobs(torch.tensor([[0.0, -torch.inf, -3e38]]), [1], [3])

    assert found.logprob == IMPOSSIBLE == -9999.0
    assert found.top == ((0, 0.0), (2, IMPOSSIBLE), (1, IMPOSSIBLE))


@pytest.mark.parametrize("value", [-torch.inf, -3e38, 3e38, 0.0])
def test_rows_that_are_all_alike_stay_finite(value: float) -> None:
    (found,) = token_logprobs(torch.full((1, 4), value), [2], [4])

    assert all(math.isfinite(logprob) for _, logprob in found.top)
    assert math.isfinite(found.logprob)
    assert [token for token, _ in found.top] == [0, 1, 2, 3]


def test_neighbours_change_nothing() -> None:
    torch.manual_seed(0)
    rows = torch.randn(8, 1000) * 5

    together = token_logprobs(rows, list(range(8)), [5] * 8)

    assert together == [token_logprobs(rows[i : i + 1], [i], [5])[0] for i in range(8)]
