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
    """The hidden state of a token is its id, its position and the length of the text; NaN for token 99."""

    def __init__(self) -> None:
        self.passes: list[list[int]] = []

    def __call__(self, input_ids: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        self.passes.append(list(lengths))
        positions = [(position, length) for length in lengths for position in range(length)]
        hidden = torch.cat((input_ids[:, None], torch.tensor(positions)), dim=1).float()
        return hidden.masked_fill((input_ids == 99)[:, None], torch.nan)


RAW = EmbeddingParams(normalize=False)


@given(st.lists(st.lists(st.integers(0, 98), min_size=1, max_size=30), min_size=1, max_size=20))
def test_every_text_gets_its_vector_for_any_passes(texts: list[list[int]]) -> None:
    model = FakeModel()

    vectors = Embedder(model, INFO).embed(texts, RAW)

    assert [vector.tolist() for vector in vectors] == [[text[-1], len(text) - 1, len(text)] for text in texts]
    assert all(sum(lengths) <= 20 or len(lengths) == 1 for lengths in model.passes)
    assert all(lengths == sorted(lengths) for lengths in model.passes)


@given(st.lists(st.integers(1, 30)), st.integers(1, 40))
def test_passes_have_every_text_once(lengths: list[int], max_num_tokens: int) -> None:
    found = list(split_into_passes(lengths, max_num_tokens))

    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    for rows in found:
        assert sum(lengths[row] for row in rows) <= max_num_tokens or len(rows) == 1


def test_a_pass_ends_before_the_text_that_exceeds_the_budget() -> None:
    assert list(split_into_passes([5, 5, 9, 1, 10], 20)) == [[4, 2], [0, 1, 3]]


def test_texts_of_one_pass_may_have_different_params() -> None:
    given = [RAW, EmbeddingParams("cls", normalize=False, dimensions=1), EmbeddingParams("mean", normalize=False)]

    found = Embedder(FakeModel(), INFO).execute([EmbeddingInput([4, 8], params) for params in given])

    assert [vector.tolist() for vector in found if isinstance(vector, np.ndarray)] == [[8, 1, 2], [4], [6, 0.5, 2]]


def test_a_non_finite_vector_fails_its_text_only() -> None:
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
def test_invalid_inputs_are_refused_by_field(
    texts: list[list[int]], params: EmbeddingParams, error: type[InvalidRequest], param: str
) -> None:
    model = FakeModel()

    with pytest.raises(InvalidRequest) as raised:
        Embedder(model, INFO).embed(texts, params)

    assert type(raised.value) is error
    assert raised.value.param == param
    assert model.passes == []


def test_vectors_are_l2_normalised_by_default() -> None:
    (vector,) = Embedder(FakeModel(), INFO).embed([[2, 3]])

    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert vector.tolist() == pytest.approx([3 / 14**0.5, 1 / 14**0.5, 2 / 14**0.5])
