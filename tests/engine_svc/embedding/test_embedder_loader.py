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
    """A folder with a config.json and an empty weights file."""
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
def test_auto_decides_by_architecture(tmp_path: Path, architecture: str, expected: bool) -> None:
    model = configured(tmp_path, architecture)

    assert is_for_embedding(model, "auto") is expected
    assert is_for_embedding(model, "embed")


def test_sentence_transformers_models_are_for_embedding_by_default(tmp_path: Path) -> None:
    model = configured(tmp_path, "Qwen3ForCausalLM")
    tiny_encoders.add_sentence_files(tmp_path)

    given: list[Task] = ["auto", "embed", "generate"]
    assert [is_for_embedding(model, task) for task in given] == [True, True, False]


def test_generation_with_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="BertModel is an embedding model; generation is not supported"):
        is_for_embedding(configured(tmp_path, "BertModel"), "generate")


def test_a_gguf_file_is_for_generation_by_default(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()

    given: list[Task] = ["auto", "embed", "generate"]
    assert [is_for_embedding(str(file), task) for task in given] == [False, True, False]


@pytest.mark.parametrize(
    ("length", "requested", "expected"),
    [(None, None, 46), (12, None, 12), (12, 40, 40), (None, 9, 9), (1000, None, 46)],
)
def test_max_model_len(tmp_path: Path, length: int | None, requested: int | None, expected: int) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.roberta()), tmp_path)
    tiny_encoders.add_sentence_files(tmp_path, length=length)

    assert load_embedder(model=folder, max_model_len=requested).info.max_model_len == expected


@pytest.mark.parametrize("requested", [0, 47])
def test_max_model_len_beyond_the_positions_is_refused(tmp_path: Path, requested: int) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.roberta()), tmp_path)

    with pytest.raises(ModelLoadError, match="max_model_len must be between 1 and 46"):
        load_embedder(model=folder, max_model_len=requested)


def test_encoder_defaults_are_float32_and_mean_pooling(tmp_path: Path) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.bert()), tmp_path)

    found = load_embedder(model=folder, max_num_batched_tokens=77).info

    assert found == EmbedderInfo(
        folder, "bert", "float32", vocab_size=97, max_model_len=48, embedding_dim=24, pooling="mean",
        max_num_batched_tokens=77,
    )  # fmt: skip


def test_decoder_default_is_last_token_pooling(tmp_path: Path) -> None:
    folder = tiny.save(tiny.random_model(tiny.qwen3()), tmp_path)

    assert load_embedder(model=folder).info.pooling == "last"
    tiny_encoders.add_sentence_files(tmp_path, pooling_mode="cls")
    assert load_embedder(model=folder).info.pooling == "cls"


def test_info_of_a_real_model(minilm: Path) -> None:
    assert is_for_embedding(str(minilm), "auto")
    assert load_embedder(model=str(minilm)).info == EmbedderInfo(
        str(minilm), "bert", "float32", vocab_size=30522, max_model_len=256, embedding_dim=384, pooling="mean",
        max_num_batched_tokens=512,
    )  # fmt: skip


def test_encoders_refuse_the_cpu_backend(tmp_path: Path) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.bert()), tmp_path)

    with pytest.raises(ModelLoadError, match="attention backend cpu does not support encoders"):
        load_embedder(model=folder, attention_backend="cpu")


def test_the_lm_head_is_not_loaded(tmp_path: Path) -> None:
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
def test_unsupported_models_are_refused_by_name(
    tmp_path: Path, architectures: list[str], config: dict[str, Any], reason: str
) -> None:
    model = configured(tmp_path, *architectures, **config)

    with pytest.raises(ModelLoadError, match=reason):
        load_embedder(model=model)
