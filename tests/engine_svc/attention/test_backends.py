from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from engine_svc.attention import backends
from engine_svc.attention.backends import create_backend
from engine_svc.attention.cpu import CpuAttention
from engine_svc.attention.interface import AttentionBackend
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.kernels.library import Kernels, load_kernels
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc.attention.paged import config


def create(name: str) -> AttentionBackend:
    return create_backend(name, config(), num_blocks=2, block_size=4)


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(backends, "load_kernels", lambda: load_kernels(tmp_path / "nothing.so"))


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

    assert [(line["log_level"], line["event"], line["build_by"]) for line in logs] == [
        (
            "warning",
            "no kernels are built for this machine, so plain torch computes, which is slower",
            "python -m engine_svc.kernels.build",
        )
    ]


@pytest.mark.usefixtures("no_kernels")
def test_kernels_that_are_asked_for_must_be_there() -> None:
    with pytest.raises(ModelLoadError, match=r"built by python -m engine_svc\.kernels\.build"):
        create("cpu")
