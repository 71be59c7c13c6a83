from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from structlog.testing import capture_logs
from transformers import GptOssConfig, PretrainedConfig

from engine_svc.executors.interface import Executor
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import foreign, loaded, tiny


def saved(folder: Path, config: PretrainedConfig | None = None, **options: Any) -> Path:
    return Path(tiny.save(tiny.random_model(config or foreign.gpt_neox()), folder, **options))


def load(folder: Path, **options: Any) -> Executor:
    return loaded.load(folder, **({"attention_backend": "reference"} | options))


def change_weights(folder: Path, **changes: Any) -> None:
    """Set tensors by name; None removes one."""
    path = folder / "model.safetensors"
    tensors = load_file(path) | {name.replace("__", "."): value for name, value in changes.items()}
    save_file({name: value for name, value in tensors.items() if value is not None}, path, {"format": "pt"})


def test_the_log_says_that_it_is_slower_and_why(tmp_path: Path) -> None:
    with capture_logs() as logs:
        load(saved(tmp_path / "foreign"))
        load(saved(tmp_path / "native", tiny.llama()))

    (line,) = logs
    assert line["log_level"] == "warning"
    assert "slower" in line["event"]
    assert line["reason"].startswith("architecture GPTNeoXForCausalLM is not supported")


def test_a_folder_in_parts(tmp_path: Path) -> None:
    assert load(saved(tmp_path, max_shard_size="4KB")).info.model_type == "gpt_neox"


def test_a_refused_model_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path, GptOssConfig(**(foreign.GROUPED | {"num_local_experts": 2, "head_dim": 8})))

    with pytest.raises(ModelLoadError, match=r"GptOssForCausalLM is not supported: it has attention sinks\. It is not"):
        load(folder)


def test_a_missing_tensor_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    change_weights(folder, gpt_neox__final_layer_norm__weight=None)

    with pytest.raises(ModelLoadError, match=r"lacks gpt_neox.final_layer_norm.weight"):
        load(folder)


def test_an_unknown_tensor_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    change_weights(folder, gpt_neox__layers__0__adapter__weight=torch.ones(2))

    with pytest.raises(ModelLoadError, match=r"has unknown gpt_neox.layers.0.adapter.weight"):
        load(folder)


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    change_weights(folder, gpt_neox__final_layer_norm__weight=torch.ones(5))

    with pytest.raises(ModelLoadError, match="transformers cannot load"):
        load(folder)


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()

    with pytest.raises(ModelLoadError, match="weights are read from safetensors only"):
        load(folder)


def test_integers_are_for_native_families(tmp_path: Path) -> None:
    saved(tmp_path)

    with pytest.raises(ModelLoadError, match="quantization int8 is for native families"):
        load(tmp_path, quantization="int8")


def test_batch_invariance_is_for_native_families(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="deterministic is for native families only"):
        load(saved(tmp_path), deterministic=True)


def test_a_native_family_is_computed_by_transformers_when_told(tmp_path: Path) -> None:
    info = load(saved(tmp_path, tiny.llama()), executor="transformers").info

    assert (info.model_type, info.batch_invariant) == ("llama", False)


def test_gguf_files_are_not_for_transformers(tmp_path: Path) -> None:
    file = Path(tiny.save_gguf(tiny.random_model(tiny.llama()), tmp_path / "tiny.gguf"))

    with pytest.raises(
        ModelLoadError, match="executor transformers: the model must be a Hugging Face folder, not a GGUF file"
    ):
        load(file, executor="transformers")
