from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from engine_svc.attention import backends
from engine_svc.attention.backends import create_backend, find_kernels
from engine_svc.attention.cpu import CpuAttention
from engine_svc.attention.interface import AttentionBackend, AttentionConfig
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.kernels.library import Kernels, load_kernels
from engine_svc.kernels.structures import StructureMismatch
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc.attention.paged import config


def create(name: str, attention: AttentionConfig | None = None) -> AttentionBackend:
    return create_backend(name, attention or config(), find_kernels(name), num_blocks=2, block_size=4)


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(backends, "load_kernels", lambda: load_kernels(tmp_path / "nothing.so"))


@pytest.fixture
def damaged_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "damaged.so").write_text("half")
    monkeypatch.setattr(backends, "load_kernels", lambda: load_kernels(tmp_path / "damaged.so"))


def test_auto_uses_built_kernels(kernels: Kernels) -> None:
    with capture_logs() as logs:
        assert isinstance(create("auto"), CpuAttention)
        assert isinstance(create("cpu"), CpuAttention)
        assert isinstance(create("reference"), ReferenceAttention)

    assert logs == []


@pytest.mark.usefixtures("no_kernels")
def test_auto_without_kernels_logs_one_warning() -> None:
    with capture_logs() as logs:
        assert isinstance(create("auto"), ReferenceAttention)

    assert [(line["log_level"], line["reason"], line["build_command"]) for line in logs] == [
        ("warning", "they are not built for this machine", "python -m engine_svc.kernels.build")
    ]
    assert "the whole model" in logs[0]["event"]


@pytest.mark.usefixtures("damaged_kernels")
def test_load_failure_of_kernels_is_reported() -> None:
    with capture_logs() as logs:
        assert isinstance(create("auto"), ReferenceAttention)

    (line,) = logs
    assert re.match(r"they cannot be loaded: .*damaged\.so", line["reason"])
    with pytest.raises(ModelLoadError, match=r"they cannot be loaded: .*damaged\.so"):
        create("cpu")


@pytest.mark.usefixtures("no_kernels")
def test_cpu_without_kernels_is_refused() -> None:
    with pytest.raises(
        ModelLoadError, match=r"not built for this machine.* Build them with python -m engine_svc\.kernels"
    ):
        create("cpu")


def test_head_dim_not_supported_by_the_kernel(kernels: Kernels) -> None:
    odd = config(head_dim=7, dtype=torch.bfloat16)
    with capture_logs() as logs:
        assert isinstance(create("auto", odd), ReferenceAttention)

    assert [line["reason"] for line in logs] == ["head_dim must be a multiple of 2 with bfloat16, got 7"]
    with pytest.raises(ModelLoadError, match="cpu does not support this model: head_dim must be a multiple of 2"):
        create("cpu", odd)
    assert isinstance(create("cpu", config(head_dim=7)), CpuAttention)


def test_mismatched_kernels_are_refused_with_auto_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def mismatched() -> Kernels:
        raise StructureMismatch("the compiled kernels do not match")

    monkeypatch.setattr(backends, "load_kernels", mismatched)

    for name in ("auto", "cpu"):
        with pytest.raises(ModelLoadError, match=r"do not match\. Rebuild them with python -m engine_svc\.kernels"):
            find_kernels(name)
