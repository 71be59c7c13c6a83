from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import engine_step
from engine_svc.kernels.library import Kernels


def header_of(output: str) -> list[str]:
    return [cell.strip() for cell in output.splitlines()[0].strip("|").split("|")]


def test_columns_name_backend_and_format(
    kernels: Kernels, tiny_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", tiny_folder, "--rounds", "1", "--threads", "1", "--dtype", "bfloat16"]
    monkeypatch.setattr(sys, "argv", ["engine_step", *arguments, "--compare", "none", "int16", "int8"])
    engine_step.main()
    output = capsys.readouterr().out
    assert header_of(output) == ["step", "cpu bfloat16, ms", "cpu int16, ms", "cpu int8, ms", "first / last"]
    assert len(output.splitlines()) == 2 + len(list(engine_step.scenarios()))


def test_backends_compute_in_the_same_dtype(kernels: Kernels, smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["engine_step", "--model", str(smollm2), "--threads", "1"])
    runners = engine_step._runners(engine_step._arguments())
    assert len({runner.info.dtype for runner in runners.values()}) == 1
