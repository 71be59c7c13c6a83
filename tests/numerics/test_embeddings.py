"""Embeddings equal those of transformers, for tiny random checkpoints and a real model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, PretrainedConfig

from engine_svc.embedding.embedder import Embedder
from engine_svc.embedding.embedder_loader import load_embedder
from engine_svc.embedding.interface import EmbeddingParams, Pooling, Vector
from engine_svc.kernels.library import load_kernels
from tests.engine_svc import tiny, tiny_encoders

TEXTS = [[(7 * i + 3 * length) % 89 + 5 for i in range(length)] for length in (17, 1, 40, 5, 17, 2)]
POOLINGS: tuple[Pooling, ...] = ("cls", "mean", "last")

ENCODERS = {
    "bert": tiny_encoders.bert(),
    "bert, one head, other epsilon": tiny_encoders.bert(num_attention_heads=1, layer_norm_eps=1e-2),
    "bert, odd head size, one layer": tiny_encoders.bert(hidden_size=28, num_hidden_layers=1),
    "roberta": tiny_encoders.roberta(),
    "roberta with other padding id": tiny_encoders.roberta(pad_token_id=4),
    "xlm-roberta": tiny_encoders.xlm_roberta(),
}
DECODERS = {
    "llama": tiny.llama(),
    "qwen 3, tied": tiny.qwen3(tie_word_embeddings=True),
    "mistral with a window": tiny.mistral(),
    "gemma 2, windows and soft caps": tiny.gemma2(),
}


def load(folder: Path, **options: Any) -> Embedder:
    given: dict[str, Any] = {"dtype": "float32", "max_num_batched_tokens": 64}
    return load_embedder(model=str(folder), **(given | options))


@torch.inference_mode()
def expected(model: Any, text: list[int], pooling: Pooling, *, normalize: bool = True) -> Vector:
    """The vector of a text, computed alone; ``model`` has no head."""
    hidden: torch.Tensor = model(torch.tensor([text])).last_hidden_state[0].float()
    vector = {"cls": hidden[0], "mean": hidden.mean(0), "last": hidden[-1]}[pooling]
    return np.asarray(vector / vector.norm() if normalize else vector)


def assert_equal(embedder: Embedder, model: Any, pooling: Pooling, **params: Any) -> None:
    vectors = embedder.embed(TEXTS, EmbeddingParams(pooling=pooling, **params))

    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, expected(model, text, pooling, **params), rtol=0, atol=1e-5)
    assert np.abs(vectors[0] - vectors[2]).max() > 0.01, "near-equal vectors would make the comparison meaningless"


@pytest.mark.parametrize("config", ENCODERS.values(), ids=ENCODERS.keys())
def test_encoders(tmp_path: Path, config: PretrainedConfig) -> None:
    model = tiny_encoders.random_encoder(config)
    embedder = load(Path(tiny.save(model, tmp_path)))

    for pooling in POOLINGS:
        assert_equal(embedder, model, pooling)
    assert_equal(embedder, model, "mean", normalize=False)
    assert embedder.info.model_type == config.model_type


@pytest.mark.parametrize("config", [tiny_encoders.bert(), tiny_encoders.xlm_roberta()], ids=lambda c: c.model_type)
def test_an_encoder_with_a_masked_lm_head(tmp_path: Path, config: PretrainedConfig) -> None:
    model = tiny_encoders.random_encoder(config, AutoModelForMaskedLM)

    assert_equal(load(Path(tiny.save(model, tmp_path))), model.base_model, "mean")


@pytest.mark.parametrize("config", DECODERS.values(), ids=DECODERS.keys())
@pytest.mark.parametrize("with_head", [True, False], ids=["with LM head", "without LM head"])
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_decoders(tmp_path: Path, config: PretrainedConfig, with_head: bool, backend: str) -> None:
    model = tiny.random_model(config)
    embedder = load(Path(tiny.save(model if with_head else model.base_model, tmp_path)), attention_backend=backend)

    for pooling in POOLINGS:
        assert_equal(embedder, model.base_model, pooling)


@pytest.mark.skipif(load_kernels() is None, reason="no kernels are built")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_vectors_of_a_compiled_decoder_are_batch_invariant(tmp_path: Path, dtype: str) -> None:
    folder = Path(tiny.save(tiny.random_model(tiny.qwen3()), tmp_path))
    embedder = load(folder, dtype=dtype, attention_backend="cpu")

    together = embedder.embed(TEXTS)

    for text, vector in zip(TEXTS, together, strict=True):
        assert np.array_equal(embedder.embed([text])[0], vector)


def test_a_decoder_from_a_gguf_file(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.qwen3())

    assert_equal(load(Path(tiny.save_gguf(model, tmp_path / "tiny.gguf"))), model.base_model, "last")


def test_bfloat16_error_is_as_small_as_in_transformers(tmp_path: Path) -> None:
    model = tiny_encoders.random_encoder(tiny_encoders.bert())
    embedder = load(Path(tiny.save(model, tmp_path)), dtype="bfloat16")
    truth = [expected(model, text, "mean") for text in TEXTS]
    model.bfloat16()
    theirs = [expected(model, text, "mean") for text in TEXTS]

    ours = embedder.embed(TEXTS)

    our_error, their_error = (np.square(np.stack(found) - np.stack(truth)).mean() for found in (ours, theirs))
    assert 0 < our_error < 1.5 * their_error


@pytest.fixture(scope="module")
def minilm_texts(minilm: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    texts = [
        "What is the capital of France?",
        "The capital of France is Paris.",
        "A recipe for pancakes: eggs, milk and flour.",
        "word " * 200,
        "",
    ]
    found: list[list[int]] = tokenizer(texts)["input_ids"]
    return found


def test_a_real_model(minilm: Path, minilm_texts: list[list[int]]) -> None:
    model = AutoModel.from_pretrained(minilm).eval()
    embedder = load_embedder(model=str(minilm))

    vectors = np.stack(embedder.embed(minilm_texts))

    truth = np.stack([expected(model, text, "mean") for text in minilm_texts])
    np.testing.assert_allclose(vectors, truth, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    assert vectors[0] @ vectors[1] > 0.8
    assert vectors[0] @ vectors[2] < 0.2


def test_vectors_of_a_real_model_do_not_depend_on_the_other_texts(minilm: Path, minilm_texts: list[list[int]]) -> None:
    embedder = load_embedder(model=str(minilm))

    together = embedder.embed(minilm_texts)

    alone = [embedder.embed([text])[0] for text in minilm_texts]
    np.testing.assert_allclose(np.stack(together), np.stack(alone), rtol=0, atol=1e-6)
