"""The kernels on Arm, in an emulator: results are those of this machine's build, except for rounding.

Needs a cross-compiler and qemu. ``make test-arm`` runs it, and says how to install them; other runs skip it, because it
compiles for some minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from engine_svc.kernels.build import _FLAGS, _SOURCES, find_compiler

COMPILER = shutil.which("aarch64-linux-gnu-g++") or ""
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static") or ""

DRIVER = Path(__file__).with_name("driver.cpp")
FORMATS = ["float32", "bfloat16", "int8", "int4", "int16"]
PROCESSORS = ["armv8-a", "armv8.2-a+dotprod", "armv8.6-a"]
"""Without products of integers; with the dot product; with i8mm and bfloat16 too"""

TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2, "int8": 2e-2, "int4": 2e-2, "int16": 2e-2}
"""Relative to the largest logit. All but float32 round keys, values and queries to bfloat16."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TEST_ARM") != "1", reason="run by make test-arm"),
]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arm")


@cache
def build(folder: Path, compiler: str, processor: str) -> str:
    program = folder / f"driver-{processor}"
    flags = [flag for flag in _FLAGS if flag not in ("-march=native", "-shared", "-fPIC")]
    sources = map(str, [*sorted(_SOURCES.glob("*.cpp")), DRIVER])
    command = [compiler, *flags, "-static", f"-march={processor}", "-I", str(_SOURCES), *sources, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return str(program)


def logits(*command: str) -> npt.NDArray[np.float64]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.array(done.stdout.split(), np.float64)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("format_", FORMATS)
def test_logits_are_those_of_this_machine(folder: Path, processor: str, format_: str) -> None:
    native = find_compiler()
    assert native is not None
    expected = logits(build(folder, native, "native"), format_)
    found = logits(EMULATOR, "-cpu", "max", build(folder, COMPILER, processor), format_)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[format_] * np.abs(expected).max())
