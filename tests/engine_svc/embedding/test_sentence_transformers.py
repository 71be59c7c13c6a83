from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine_svc.embedding.sentence_transformers import (
    SentenceTransformersConfig,
    is_sentence_transformers_model,
    read_sentence_transformers_config,
)
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc.tiny_encoders import add_sentence_files

OLD = {"word_embedding_dimension": 24, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False,
       "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}  # fmt: skip


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (OLD | {"pooling_mode_cls_token": True}, "cls"),
        (OLD | {"pooling_mode_mean_tokens": True}, "mean"),
        (OLD | {"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        (OLD, "mean"),
        ({"embedding_dimension": 24, "pooling_mode": "lasttoken", "include_prompt": True}, "last"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": ["mean"]}, "mean"),
        ({}, "mean"),
    ],
    ids=str,
)
def test_pooling_in_old_and_new_format(tmp_path: Path, pooling: dict[str, Any], expected: str) -> None:
    add_sentence_files(tmp_path, **pooling)

    assert read_sentence_transformers_config(tmp_path) == SentenceTransformersConfig(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pooling", "reason"),
    [
        (OLD | {"pooling_mode_max_tokens": True}, "pooling pooling_mode_max_tokens is not supported"),
        (OLD | {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "cls_token and pooling_mode_mean"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode": ["cls", "mean"]}, "cls and mean"),
        ({"pooling_mode": "mean", "include_prompt": False}, "include_prompt"),
    ],
    ids=str,
)
def test_unsupported_poolings_are_refused_by_name(tmp_path: Path, pooling: dict[str, Any], reason: str) -> None:
    add_sentence_files(tmp_path, **pooling)

    with pytest.raises(ModelLoadError, match=reason):
        read_sentence_transformers_config(tmp_path)


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}], "module type Dense is not supported"),
        ([{"path": "0"}], "module type None is not supported"),
        (["Pooling"], "a module must be an object, got 'Pooling'"),
        ({}, "is not a JSON array"),
        ([{"type": "Pooling", "path": "no_folder"}], r"no_folder/config\.json cannot be read"),
    ],
)
def test_unsupported_modules_are_refused_by_name(tmp_path: Path, modules: Any, reason: str) -> None:
    (tmp_path / "modules.json").write_text(json.dumps(modules))

    with pytest.raises(ModelLoadError, match=reason):
        read_sentence_transformers_config(tmp_path)


def test_max_seq_length_is_read(tmp_path: Path) -> None:
    add_sentence_files(tmp_path, length=12, pooling_mode="mean")

    assert read_sentence_transformers_config(tmp_path) == SentenceTransformersConfig("mean", 12)
    assert is_sentence_transformers_model(tmp_path)


def test_modules_are_recognised_by_class_name_in_any_package(tmp_path: Path) -> None:
    packages = ["sentence_transformers.models", "sentence_transformers.sentence_transformer.modules.normalize"]
    modules = [{"type": f"{package}.{kind}"} for package in packages for kind in ("Transformer", "Normalize")]
    (tmp_path / "modules.json").write_text(json.dumps(modules))

    assert read_sentence_transformers_config(tmp_path) == SentenceTransformersConfig()


def test_a_folder_without_the_files(tmp_path: Path) -> None:
    assert not is_sentence_transformers_model(tmp_path)
    assert read_sentence_transformers_config(tmp_path) == SentenceTransformersConfig()
    assert read_sentence_transformers_config(tmp_path / "model.gguf") == SentenceTransformersConfig()
