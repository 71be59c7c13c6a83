"""Vectors for texts, without servers. tests/numerics/test_embeddings.py compares them with transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine_svc import LLM
from engine_svc.embedding.embedder_loader import load_embedder

TEXTS = ["What is the capital of France?", "The capital of France is Paris.", "A recipe for pancakes: eggs and milk."]


@pytest.fixture(scope="module")
def llm(minilm: Path) -> LLM:
    return LLM(minilm)


def test_texts(llm: LLM) -> None:
    vectors = np.stack(llm.embed(TEXTS))
    assert vectors.shape == (3, 384)
    assert vectors[0] @ vectors[1] > 0.8 > 0.2 > vectors[0] @ vectors[2]


def test_a_text_is_tokenized_as_the_model_wants(llm: LLM, minilm: Path) -> None:
    token_ids = llm.get_tokenizer()(TEXTS[0])["input_ids"]
    (expected,) = load_embedder(model=str(minilm)).embed([token_ids])
    for text in (TEXTS[0], token_ids):
        (vector,) = llm.embed(text)
        np.testing.assert_array_equal(vector, expected)


def test_options(llm: LLM) -> None:
    (plain,), (cut,) = llm.embed("x", normalize=False), llm.embed("x", dimensions=16)
    np.testing.assert_allclose(cut, plain[:16] / np.linalg.norm(plain[:16]), rtol=1e-5)
    (first,) = llm.embed("x", pooling="cls")
    assert np.abs(first[:16] - cut).max() > 1e-3


def test_no_texts_no_vectors(llm: LLM) -> None:
    assert llm.embed([]) == []


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["x", []], {}, r"input\.1: .*at least one token"),
        ([[5] * 1000], {}, r"input\.0: .*1000"),
        (["x"], {"dimensions": 385}, "dimensions .*384.*385"),
        (["x"], {"pooling": "max"}, "pooling .*max"),
    ],
)
def test_a_bad_value_is_named(llm: LLM, texts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.embed(texts, **options)


def test_an_embedding_model_does_not_generate(llm: LLM) -> None:
    with pytest.raises(ValueError, match="generate and chat are not supported"):
        llm.generate("x")


def test_settings_for_generating_are_refused(minilm: Path) -> None:
    with pytest.raises(ValueError, match="num_blocks"):
        LLM(minilm, num_blocks=4)


def test_a_decoder_embeds_if_told_to(tiny_folder: str) -> None:
    vectors = LLM(tiny_folder, task="embed", dtype="float32").embed(TEXTS)
    np.testing.assert_allclose([np.linalg.norm(vector) for vector in vectors], 1.0, atol=1e-5)
