"""Products in integers are exact, at the ends of the ranges too, for all tile sizes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine_svc.kernels.library import Kernels
from engine_svc.kernels.memory import Arena
from engine_svc.kernels.packing import Format, PackedMatrix, pack
from engine_svc.kernels.structures import Linear, Matrix
from engine_svc.weights.quantized import GROUP_SIZE, QuantizedRows

MAX_ACTIVATION = 127
PATTERNS = ["random", "highest", "lowest", "alternating", "alternating pairs"]


def values(pattern: str, shape: tuple[int, int], lowest: int, highest: int, seed: int) -> Tensor:
    """Integers from ``lowest`` to ``highest``, float32 of this shape."""
    columns = torch.arange(shape[1])
    match pattern:
        case "random":
            return torch.randint(lowest, highest + 1, shape, generator=torch.Generator().manual_seed(seed)).float()
        case "highest":
            return torch.full(shape, float(highest))
        case "lowest":
            return torch.full(shape, float(lowest))
        case "alternating":
            row = torch.where(columns % 2 == 0, highest, lowest)
        case _:
            row = torch.where(columns % 4 < 2, highest, lowest)
    return row.float().expand(shape).contiguous()


def quantized(weights: Tensor, bits: int) -> QuantizedRows:
    """The same weights, with all scales 1."""
    stored = (weights if bits == 4 else weights + 128).to(torch.uint8)
    ones = torch.ones(len(weights), weights.shape[1] // GROUP_SIZE, dtype=torch.float16)
    return QuantizedRows(bits, stored, ones, torch.zeros_like(ones) if bits == 4 else None)


def product(kernels: Kernels, activations: Tensor, matrix: PackedMatrix, format_: Format, num_threads: int) -> Tensor:
    """[rows, outputs]"""
    linear = Linear((Matrix * 3)(matrix.structure()), 1)
    return kernels.multiply(linear, format_, activations, num_threads=num_threads).results


@given(
    bits=st.sampled_from([4, 8]),
    format_=st.sampled_from([Format.INT8, Format.INT16]),
    num_rows=st.integers(1, 9),
    outputs=st.integers(1, 70),
    groups=st.integers(1, 8),
    weight_pattern=st.sampled_from(PATTERNS),
    activation_pattern=st.sampled_from(PATTERNS),
    num_threads=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_sums_are_exact(
    kernels: Kernels,
    bits: int,
    format_: Format,
    num_rows: int,
    outputs: int,
    groups: int,
    weight_pattern: str,
    activation_pattern: str,
    num_threads: int,
    seed: int,
) -> None:
    inputs = groups * GROUP_SIZE
    lowest, highest = (0, 15) if bits == 4 else (-128, 127)
    weights = values(weight_pattern, (outputs, inputs), lowest, highest, seed)
    activations = values(activation_pattern, (num_rows, inputs), -MAX_ACTIVATION, MAX_ACTIVATION, seed + 1)
    activations[:, ::GROUP_SIZE] = MAX_ACTIVATION  # so that the scale of each group is 1

    matrix = pack(quantized(weights, bits), kernels.lanes, Arena())

    expected = activations.double() @ weights.double().T  # below 2^24, so exact in float32
    assert torch.equal(product(kernels, activations, matrix, format_, num_threads), expected.float())


@pytest.mark.parametrize("bits", [4, 8])
def test_low_parts_are_exact(kernels: Kernels, bits: int) -> None:
    weights = values("random", (33, GROUP_SIZE), 0, 15, seed=1)
    fractions = values("random", (5, GROUP_SIZE), -64, 63, seed=2) / 128
    activations = (values("random", (5, GROUP_SIZE), -126, 126, seed=3) + fractions).clone()
    activations[:, 0] = MAX_ACTIVATION

    matrix = pack(quantized(weights, bits), kernels.lanes, Arena())

    expected = activations.double() @ weights.double().T
    assert torch.equal(product(kernels, activations, matrix, Format.INT16, 1), expected.float())
