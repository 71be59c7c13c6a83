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


def test_kernels_are_taken_where_they_are_built(kernels: Kernels) -> None:
    with capture_logs() as logs:
        assert isinstance(create("auto"), CpuAttention)
        assert isinstance(create("cpu"), CpuAttention)
        assert isinstance(create("reference"), ReferenceAttention)

    assert logs == []


@pytest.mark.usefixtures("no_kernels")
def test_without_kernels_plain_torch_computes_and_the_log_says_so_in_a_line() -> None:
    with capture_logs() as logs:
        assert isinstance(create("auto"), ReferenceAttention)

    assert [(line["log_level"], line["reason"], line["build_by"]) for line in logs] == [
        ("warning", "they are not built for this machine", "python -m engine_svc.kernels.build")
    ]
    assert "all of the model" in logs[0]["event"]


@pytest.mark.usefixtures("damaged_kernels")
def test_kernels_that_cannot_be_loaded_are_not_called_missing() -> None:
    with capture_logs() as logs:
        assert isinstance(create("auto"), ReferenceAttention)

    (line,) = logs
    assert re.match(r"they cannot be loaded: .*damaged\.so", line["reason"])
    with pytest.raises(ModelLoadError, match=r"they cannot be loaded: .*damaged\.so"):
        create("cpu")


@pytest.mark.usefixtures("no_kernels")
def test_kernels_that_are_asked_for_must_be_there() -> None:
    with pytest.raises(ModelLoadError, match=r"not built for this machine.* built by python -m engine_svc\.kernels"):
        create("cpu")


def test_heads_that_do_not_fill_the_words_of_the_cache_are_not_for_the_kernel(kernels: Kernels) -> None:
    odd = config(head_dim=7, dtype=torch.bfloat16)
    with capture_logs() as logs:
        assert isinstance(create("auto", odd), ReferenceAttention)

    assert [line["reason"] for line in logs] == ["heads of 7 numbers do not fill words of 4 bytes with bfloat16"]
    with pytest.raises(ModelLoadError, match="cpu cannot compute this model: heads of 7 numbers"):
        create("cpu", odd)
    assert isinstance(create("cpu", config(head_dim=7)), CpuAttention)


def test_kernels_of_another_version_are_refused_even_if_nobody_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def mismatched() -> Kernels:
        raise StructureMismatch("the compiled kernels do not match")

    monkeypatch.setattr(backends, "load_kernels", mismatched)

    for name in ("auto", "cpu"):
        with pytest.raises(ModelLoadError, match=r"do not match\. They are built by python -m engine_svc\.kernels"):
            find_kernels(name)
