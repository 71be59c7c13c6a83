from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from engine_svc.kernels.library import Kernels
from engine_svc.kernels.packing import Format
from engine_svc.models.precision import resolve_dtype, resolve_format
from engine_svc.weights.checkpoint import Checkpoint
from engine_svc.weights.errors import ModelLoadError


@dataclass
class Facts:
    """Those of a checkpoint and of kernels that count here."""

    is_quantized: bool = True
    fast_integers: bool = True


def resolve(dtype: str, quantization: str, facts: Facts, *, kernels: bool = True) -> Format:
    checkpoint = cast(Checkpoint, facts)
    return resolve_format(dtype, quantization, checkpoint, cast(Kernels, facts) if kernels else None)


def test_stored_integers_are_multiplied_as_integers() -> None:
    assert resolve("auto", "auto", Facts()) is Format.INT8


@pytest.mark.parametrize(
    ("facts", "kernels"),
    [(Facts(is_quantized=False), True), (Facts(fast_integers=False), True), (Facts(), False)],
)
def test_auto_stays_with_floats_where_integers_gain_nothing(facts: Facts, kernels: bool) -> None:
    expected = {"float32": Format.FLOAT32, "bfloat16": Format.BFLOAT16}

    found = resolve("auto", "auto", facts, kernels=kernels)

    assert found is expected[str(resolve_dtype("auto")).removeprefix("torch.")]


@pytest.mark.parametrize(("dtype", "expected"), [("float32", Format.FLOAT32), ("bfloat16", Format.BFLOAT16)])
def test_a_dtype_that_was_asked_for_is_taken(dtype: str, expected: Format) -> None:
    assert resolve(dtype, "auto", Facts()) is expected
    assert resolve(dtype, "none", Facts()) is expected


@pytest.mark.parametrize(("quantization", "expected"), [("int8", Format.INT8), ("int16", Format.INT16)])
def test_integers_can_be_asked_for(quantization: str, expected: Format) -> None:
    assert resolve("bfloat16", quantization, Facts(is_quantized=False, fast_integers=False)) is expected


def test_integers_need_kernels() -> None:
    with pytest.raises(ModelLoadError, match="int8 needs the compiled kernels"):
        resolve("auto", "int8", Facts(), kernels=False)


def test_integers_and_float32_exclude_each_other() -> None:
    with pytest.raises(ModelLoadError, match="not float32"):
        resolve("float32", "int8", Facts())
