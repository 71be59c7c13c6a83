"""A clone without ``git lfs`` has pointer files instead of weights; they are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_svc.offline.text import load_text
from engine_svc.weights.checkpoint import open_checkpoint
from engine_svc.weights.errors import ModelLoadError
from tests.modelfiles.given import POINTER

MESSAGE = "is a Git LFS pointer, not the file itself; run git lfs pull"


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json"]
)
def test_in_a_folder(tmp_path: Path, name: str) -> None:
    for file in ("config.json", "generation_config.json"):
        (tmp_path / file).write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(ModelLoadError, match=f"{name} {MESSAGE}"):
        list(open_checkpoint(tmp_path).tensors())


def test_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(POINTER)
    with pytest.raises(ModelLoadError, match=MESSAGE):
        open_checkpoint(path)
    with pytest.raises(ModelLoadError, match=MESSAGE):
        load_text(str(path))


def test_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_bytes(POINTER)
    with pytest.raises(ModelLoadError, match=MESSAGE):
        load_text(str(tmp_path))
