"""Which executor computes which model, by default and by setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine_svc.attention.cpu import CpuAttention
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.executors.cpu.executor import CpuExecutor
from engine_svc.executors.torch.executor import TorchExecutor
from engine_svc.executors.transformers.executor import TransformersExecutor
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import foreign, tiny
from tests.engine_svc.loaded import load


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny.save(tiny.random_model(tiny.llama()), tmp_path_factory.mktemp("llama"))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, CpuExecutor),
        ({"attention_backend": "cpu"}, CpuExecutor),
        ({"attention_backend": "reference"}, TorchExecutor),
        ({"executor": "torch"}, TorchExecutor),
        ({"executor": "cpu"}, CpuExecutor),
        ({"executor": "transformers"}, TransformersExecutor),
    ],
    ids=str,
)
def test_a_native_family(native: str, options: dict[str, str], expected: type[Any]) -> None:
    assert isinstance(load(native, **options), expected)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("attention_backend", "expected"),
    [("auto", CpuAttention), ("cpu", CpuAttention), ("reference", ReferenceAttention)],
)
def test_attention_is_chosen_independently(native: str, attention_backend: str, expected: type[Any]) -> None:
    executor = load(native, executor="torch", attention_backend=attention_backend)

    assert isinstance(executor, TorchExecutor)
    assert isinstance(executor.attention, expected)


@pytest.mark.usefixtures("kernels")
def test_another_family_is_computed_by_transformers(tmp_path: Path) -> None:
    folder = tiny.save(tiny.random_model(foreign.gpt_neox()), tmp_path)

    assert isinstance(load(folder), TransformersExecutor)
    for name in ("torch", "cpu"):
        with pytest.raises(ModelLoadError, match="GPTNeoXForCausalLM is not supported"):
            load(folder, executor=name)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"executor": "tpu"}, "unknown executor: tpu; executors: auto, cpu, torch, transformers"),
        (
            {"executor": "cpu", "attention_backend": "reference"},
            "executor cpu: attention backend must be auto or cpu, not reference",
        ),
        (
            {"executor": "torch", "quantization": "int8", "dtype": "auto"},
            "int8 needs the compiled kernels",
        ),
        ({"num_blocks": 0}, "KV cache memory of 0 bytes is less than one block"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(native: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        load(native, **options)


def test_without_kernels_torch_computes(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_svc.attention.backends.load_kernels", lambda: None)

    assert isinstance(load(native), TorchExecutor)
    with pytest.raises(ModelLoadError, match="executor cpu: the compiled kernels are missing"):
        load(native, executor="cpu")
