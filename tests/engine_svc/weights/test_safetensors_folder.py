from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.safetensors_folder import SafetensorsFolder
from tests.engine_svc import tiny


def folder(path: Path, tensors: dict[str, torch.Tensor] | None = None, **config: Any) -> Path:
    """A checkpoint folder with one safetensors file."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file({"a": torch.ones(2, 3)} if tensors is None else tensors, path / "model.safetensors")
    return path


def load(checkpoint: SafetensorsFolder, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    loaded = {}
    for tensor in checkpoint.tensors():
        loaded[tensor.name] = torch.full(tensor.shape, torch.nan, dtype=dtype)
        tensor.copy_to(loaded[tensor.name])
    return loaded


@pytest.mark.parametrize("options", [{}, {"max_shard_size": "4KB"}])
def test_all_tensors_of_all_files_are_read(tmp_path: Path, options: dict[str, Any]) -> None:
    model = tiny.random_model(tiny.llama())
    path = Path(tiny.save(model, tmp_path, **options))

    loaded = load(SafetensorsFolder(path))

    assert (len(list(path.glob("*.safetensors"))) > 3) == bool(options)
    assert loaded.keys() == model.state_dict().keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16])
def test_dtypes_are_converted(tmp_path: Path, stored: torch.dtype, wanted: torch.dtype) -> None:
    values = torch.randn(3, 5).to(stored)

    loaded = load(SafetensorsFolder(folder(tmp_path, {"a": values})), wanted)

    assert torch.equal(loaded["a"], values.to(wanted))


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ({"eos_token_id": 2}, None, (2,)),
        ({"eos_token_id": 2}, {"eos_token_id": [5, 2, 3]}, (2, 3, 5)),
        ({"eos_token_id": None}, {"eos_token_id": 7}, (7,)),
        ({"eos_token_id": 0}, {}, (0,)),
        ({}, None, ()),
    ],
)
def test_eos_token_ids(
    tmp_path: Path, config: dict[str, Any], generation: dict[str, Any] | None, expected: tuple[int, ...]
) -> None:
    folder(tmp_path, **config)
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))

    assert SafetensorsFolder(tmp_path).eos_token_ids == expected


def test_pickled_weights_are_never_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": torch.ones(1)}, tmp_path / "pytorch_model.bin")

    with pytest.raises(ModelLoadError, match=r"lacks model\.safetensors; weights are read from safetensors only"):
        SafetensorsFolder(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    path = Path(tiny.save(tiny.random_model(tiny.llama()), tmp_path, max_shard_size="4KB"))
    shard = sorted(path.glob("*.safetensors"))[1]
    shard.unlink()

    with pytest.raises(ModelLoadError, match=shard.name):
        SafetensorsFolder(path)


def test_an_index_without_shards_is_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {}}')

    with pytest.raises(ModelLoadError, match="lacks weights"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00"])
def test_a_config_that_is_not_a_json_object_is_refused(tmp_path: Path, content: str) -> None:
    folder(tmp_path)
    (tmp_path / "config.json").write_text(content)

    with pytest.raises(ModelLoadError, match=r"config\.json"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("length", [0, 4, 8, 60])
def test_a_damaged_file_is_refused(tmp_path: Path, length: int) -> None:
    folder(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])

    with pytest.raises(ModelLoadError, match=r"model\.safetensors is damaged"):
        load(SafetensorsFolder(tmp_path))


def test_integer_tensors_are_refused_as_weights(tmp_path: Path) -> None:
    folder(tmp_path, {"a": torch.ones(2, dtype=torch.int8)})

    with pytest.raises(ModelLoadError, match="dtype I8 of a is not supported; supported: F64, F32, F16, BF16"):
        load(SafetensorsFolder(tmp_path))


def test_unused_integer_tensors_are_accepted(tmp_path: Path) -> None:
    folder(tmp_path, {"position_ids": torch.arange(2)})

    assert [tensor.name for tensor in SafetensorsFolder(tmp_path).tensors()] == ["position_ids"]


def test_quantised_folders_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, quantization_config={"quant_method": "gptq"})

    with pytest.raises(ModelLoadError, match="quantised"):
        SafetensorsFolder(tmp_path)
