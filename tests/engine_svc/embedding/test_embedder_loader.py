from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_svc.embedding.embedder_loader import Task, is_for_embedding, load_embedder
from engine_svc.embedding.interface import EmbedderInfo
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import tiny, tiny_encoders


def configured(folder: Path, *architectures: str, **config: Any) -> str:
    """A folder that says what it is, with an empty file for weights."""
    (folder / "config.json").write_text(json.dumps({"architectures": architectures} | config))
    (folder / "model.safetensors").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("BertModel", True),
        ("XLMRobertaForMaskedLM", True),
        ("Qwen3Model", True),
        ("Qwen3ForCausalLM", False),
        ("FalconModel", False),
    ],
)
def test_what_a_model_is_for_is_in_its_architecture(tmp_path: Path, architecture: str, expected: bool) -> None:
    model = configured(tmp_path, architecture)

    assert is_for_embedding(model, "auto") is expected
    assert is_for_embedding(model, "embed")


def test_what_sentence_transformers_saved_is_for_embedding_unless_told_otherwise(tmp_path: Path) -> None:
    model = configured(tmp_path, "Qwen3ForCausalLM")
    tiny_encoders.add_sentence_files(tmp_path)

    given: list[Task] = ["auto", "embed", "generate"]
    assert [is_for_embedding(model, task) for task in given] == [True, True, False]


def test_an_encoder_cannot_be_told_to_generate(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="BertModel embeds and cannot generate"):
        is_for_embedding(configured(tmp_path, "BertModel"), "generate")


def test_a_gguf_file_generates_unless_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()

    given: list[Task] = ["auto", "embed", "generate"]
    assert [is_for_embedding(str(file), task) for task in given] == [False, True, False]


@pytest.mark.parametrize(
    ("length", "asked", "expected"), [(None, None, 46), (12, None, 12), (12, 40, 40), (None, 9, 9), (1000, None, 46)]
)
def test_the_longest_text(tmp_path: Path, length: int | None, asked: int | None, expected: int) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.roberta()), tmp_path)
    tiny_encoders.add_sentence_files(tmp_path, length=length)

    assert load_embedder(model=folder, max_model_len=asked).info.max_model_len == expected


@pytest.mark.parametrize("asked", [0, 47])
def test_a_longer_text_than_the_positions_is_refused(tmp_path: Path, asked: int) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.roberta()), tmp_path)

    with pytest.raises(ModelLoadError, match="is not between 1 and 46"):
        load_embedder(model=folder, max_model_len=asked)


def test_an_encoder_is_float32_and_takes_the_mean_unless_told_otherwise(tmp_path: Path) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.bert()), tmp_path)

    found = load_embedder(model=folder, max_num_batched_tokens=77).info

    assert found == EmbedderInfo(
        folder, "bert", "float32", vocab_size=97, max_model_len=48, embedding_dim=24, pooling="mean",
        max_num_batched_tokens=77,
    )  # fmt: skip


def test_a_decoder_takes_the_last_token_unless_told_otherwise(tmp_path: Path) -> None:
    folder = tiny.save(tiny.random_model(tiny.qwen3()), tmp_path)

    assert load_embedder(model=folder).info.pooling == "last"
    tiny_encoders.add_sentence_files(tmp_path, pooling_mode="cls")
    assert load_embedder(model=folder).info.pooling == "cls"


def test_a_real_folder_says_how_it_is_used(minilm: Path) -> None:
    assert is_for_embedding(str(minilm), "auto")
    assert load_embedder(model=str(minilm)).info == EmbedderInfo(
        str(minilm), "bert", "float32", vocab_size=30522, max_model_len=256, embedding_dim=384, pooling="mean",
        max_num_batched_tokens=512,
    )  # fmt: skip


def test_an_encoder_has_no_compiled_kernels(tmp_path: Path) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.bert()), tmp_path)

    with pytest.raises(ModelLoadError, match="attention backend cpu is for decoders"):
        load_embedder(model=folder, attention_backend="cpu")


def test_the_output_matrix_is_not_loaded(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.llama(vocab_size=1000))
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    folder = tiny.save(model, tmp_path)

    assert load_embedder(model=folder, dtype="float32").embed([[1, 2, 3]])[0].shape == (24,)


@pytest.mark.parametrize(
    ("architectures", "config", "reason"),
    [
        (["MPNetModel"], {}, r"MPNetModel is not supported.*Supported encoders: BertModel, BertForMaskedLM"),
        (["GPTNeoXForCausalLM"], {}, "GPTNeoXForCausalLM is not supported"),
        ([], {}, "none given"),
        (["Qwen2ForCausalLM"], {"is_causal": False}, "is_causal False is not supported"),
        (["LlamaModel"], {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, architectures: list[str], config: dict[str, Any], reason: str
) -> None:
    model = configured(tmp_path, *architectures, **config)

    with pytest.raises(ModelLoadError, match=reason):
        load_embedder(model=model)
