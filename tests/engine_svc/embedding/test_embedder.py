from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.embedding.embedder import Embedder, split_into_passes
from engine_svc.embedding.interface import EmbedderInfo, EmbeddingInput, EmbeddingParams
from svclib.errors import ContextLengthExceeded, InvalidRequest

INFO = EmbedderInfo("m", "m", "float32", vocab_size=100, max_model_len=30, embedding_dim=3, pooling="last",
                    max_num_batched_tokens=20)  # fmt: skip


class FakeModel:
    """A token's vector is its id, its place in the text, and the length of the text; 99 has none."""

    def __init__(self) -> None:
        self.passes: list[list[int]] = []

    def __call__(self, input_ids: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        self.passes.append(list(lengths))
        places = [(place, length) for length in lengths for place in range(length)]
        hidden = torch.cat((input_ids[:, None], torch.tensor(places)), dim=1).float()
        return hidden.masked_fill((input_ids == 99)[:, None], torch.nan)


RAW = EmbeddingParams(normalize=False)


@given(st.lists(st.lists(st.integers(0, 98), min_size=1, max_size=30), min_size=1, max_size=20))
def test_every_text_gets_its_own_vector_whatever_the_passes(texts: list[list[int]]) -> None:
    told = FakeModel()

    vectors = Embedder(told, INFO).embed(texts, RAW)

    assert [vector.tolist() for vector in vectors] == [[text[-1], len(text) - 1, len(text)] for text in texts]
    assert all(sum(lengths) <= 20 or len(lengths) == 1 for lengths in told.passes)
    assert all(lengths == sorted(lengths) for lengths in told.passes)


@given(st.lists(st.integers(1, 30)), st.integers(1, 40))
def test_passes_hold_every_text_once(lengths: list[int], most: int) -> None:
    found = list(split_into_passes(lengths, most))

    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    for rows in found:
        assert sum(lengths[row] for row in rows) <= most or len(rows) == 1


def test_a_pass_is_as_full_as_the_next_text_allows() -> None:
    assert list(split_into_passes([5, 5, 9, 1, 10], 20)) == [[4, 2], [0, 1, 3]]


def test_texts_of_one_pass_may_want_different_things() -> None:
    given = [RAW, EmbeddingParams("cls", normalize=False, dimensions=1), EmbeddingParams("mean", normalize=False)]

    found = Embedder(FakeModel(), INFO).execute([EmbeddingInput([4, 8], params) for params in given])

    assert [vector.tolist() for vector in found if isinstance(vector, np.ndarray)] == [[8, 1, 2], [4], [6, 0.5, 2]]


def test_a_vector_that_is_not_finite_is_the_fault_of_its_text_alone() -> None:
    embedder = Embedder(FakeModel(), INFO)

    good, bad = embedder.execute([EmbeddingInput([1, 2], RAW), EmbeddingInput([1, 99], RAW)])

    assert isinstance(good, np.ndarray)
    assert isinstance(bad, ArithmeticError)
    with pytest.raises(ArithmeticError, match="not finite"):
        embedder.embed([[1, 2], [1, 99]])


@pytest.mark.parametrize(
    ("texts", "params", "error", "param"),
    [
        ([], RAW, InvalidRequest, "input"),
        ([[1], []], RAW, InvalidRequest, "input.1"),
        ([[1] * 31], RAW, ContextLengthExceeded, "input.0"),
        ([[1, 100]], RAW, InvalidRequest, "input.0"),
        ([[-1, 5]], RAW, InvalidRequest, "input.0"),
        ([[1]], EmbeddingParams(dimensions=0), InvalidRequest, "dimensions"),
        ([[1]], EmbeddingParams(dimensions=4), InvalidRequest, "dimensions"),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_name(
    texts: list[list[int]], params: EmbeddingParams, error: type[InvalidRequest], param: str
) -> None:
    told = FakeModel()

    with pytest.raises(InvalidRequest) as raised:
        Embedder(told, INFO).embed(texts, params)

    assert type(raised.value) is error
    assert raised.value.param == param
    assert told.passes == []


def test_vectors_have_length_one_unless_told_otherwise() -> None:
    (vector,) = Embedder(FakeModel(), INFO).embed([[2, 3]])

    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert vector.tolist() == pytest.approx([3 / 14**0.5, 1 / 14**0.5, 2 / 14**0.5])
