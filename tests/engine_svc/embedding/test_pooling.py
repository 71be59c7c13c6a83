from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine_svc.embedding.interface import EmbeddingParams, Pooling
from engine_svc.embedding.pooling import embeddings, pool, truncate_and_normalize

HIDDEN = 6
FLOATS = st.floats(-1e3, 1e3, width=32)
TEXT = arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.just(HIDDEN)), elements=FLOATS)
PARAMS = st.builds(
    EmbeddingParams,
    pooling=st.sampled_from([None, *get_args(Pooling)]),
    normalize=st.booleans(),
    dimensions=st.one_of(st.none(), st.integers(1, HIDDEN)),
)


@pytest.mark.parametrize(("pooling", "expected"), [("cls", [1.0, 2.0]), ("last", [5.0, 9.0]), ("mean", [3.0, 5.0])])
def test_each_pooling(pooling: Pooling, expected: list[float]) -> None:
    hidden = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]])

    assert pool(hidden, pooling).tolist() == expected


def test_the_mean_is_computed_in_float32() -> None:
    hidden = torch.tensor([[256.0]] + [[1.0]] * 255, dtype=torch.bfloat16)

    assert pool(hidden, "mean").item() == pytest.approx(511 / 256)


def test_a_vector_is_truncated_before_it_is_normalised() -> None:
    vector = torch.tensor([3.0, 4.0, 12.0])

    assert truncate_and_normalize(vector, EmbeddingParams(dimensions=2)).tolist() == pytest.approx([0.6, 0.8])
    assert truncate_and_normalize(vector, EmbeddingParams(dimensions=2, normalize=False)).tolist() == [3.0, 4.0]
    assert truncate_and_normalize(vector, EmbeddingParams()).tolist() == pytest.approx([3 / 13, 4 / 13, 12 / 13])


def test_a_zero_vector_is_unchanged() -> None:
    assert truncate_and_normalize(torch.zeros(3), EmbeddingParams()).tolist() == [0.0, 0.0, 0.0]


@given(st.lists(st.tuples(TEXT, PARAMS), min_size=1, max_size=5))
def test_texts_of_a_batch_are_pooled_separately(batch: list[tuple[np.ndarray, EmbeddingParams]]) -> None:
    texts, params = zip(*batch, strict=True)
    hidden = torch.from_numpy(np.concatenate(texts))

    found = embeddings(hidden, [len(text) for text in texts], params, "mean")

    for text, each, vector in zip(texts, params, found, strict=True):
        assert torch.equal(vector, truncate_and_normalize(pool(torch.from_numpy(text), each.pooling or "mean"), each))
        assert len(vector) == (each.dimensions or HIDDEN)


@given(TEXT, st.integers(1, HIDDEN))
def test_truncated_vectors_are_prefixes(text: np.ndarray, dimensions: int) -> None:
    hidden = torch.from_numpy(text)

    cut = truncate_and_normalize(pool(hidden, "mean"), EmbeddingParams(dimensions=dimensions))

    start = pool(hidden, "mean")[:dimensions]
    length = start.norm()
    assert cut.norm() == pytest.approx(1.0, abs=1e-5) or length < 1e-6
    torch.testing.assert_close(cut * length, start, rtol=1e-4, atol=1e-5)
