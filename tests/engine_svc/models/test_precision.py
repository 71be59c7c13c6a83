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
    """The properties of a checkpoint and of kernels that are read here."""

    is_quantized: bool = True
    has_fast_int8: bool = True


def resolve(dtype: str, quantization: str, facts: Facts, *, kernels: bool = True) -> Format:
    checkpoint = cast(Checkpoint, facts)
    return resolve_format(dtype, quantization, checkpoint, cast(Kernels, facts) if kernels else None)


def test_auto_selects_int8_for_quantised_checkpoints() -> None:
    assert resolve("auto", "auto", Facts()) is Format.INT8


@pytest.mark.parametrize(
    ("facts", "kernels"),
    [(Facts(is_quantized=False), True), (Facts(has_fast_int8=False), True), (Facts(), False)],
)
def test_auto_selects_floats_where_integers_are_not_faster(facts: Facts, kernels: bool) -> None:
    expected = {"float32": Format.FLOAT32, "bfloat16": Format.BFLOAT16}

    found = resolve("auto", "auto", facts, kernels=kernels)

    assert found is expected[str(resolve_dtype("auto")).removeprefix("torch.")]


@pytest.mark.parametrize(("dtype", "expected"), [("float32", Format.FLOAT32), ("bfloat16", Format.BFLOAT16)])
def test_an_explicit_dtype_is_used(dtype: str, expected: Format) -> None:
    assert resolve(dtype, "auto", Facts()) is expected
    assert resolve(dtype, "none", Facts()) is expected


@pytest.mark.parametrize(("quantization", "expected"), [("int8", Format.INT8), ("int16", Format.INT16)])
def test_explicit_quantization(quantization: str, expected: Format) -> None:
    assert resolve("bfloat16", quantization, Facts(is_quantized=False, has_fast_int8=False)) is expected


def test_quantization_needs_kernels() -> None:
    with pytest.raises(ModelLoadError, match="int8 needs the compiled kernels"):
        resolve("auto", "int8", Facts(), kernels=False)


def test_quantization_with_float32_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="not float32"):
        resolve("float32", "int8", Facts())
