"""Weights as small integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

GROUP_SIZE: Final = 32
"""Neighbouring inputs that share a scale, as in the quantised types of GGUF that are kept as they are"""

ZERO_POINT: Final = 128
"""What is added to 8-bit numbers so that none is negative"""

_CHUNK_ELEMENTS: Final = 1 << 20
"""Elements quantised at a time, which bounds the memory that it takes on top of the matrix"""


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows of a matrix: a weight is ``scale * number + minimum``, or ``scale * (number - 128)`` with 8 bits."""

    bits: int
    """4 or 8"""
    values: Tensor
    """uint8 [rows, inputs]; inputs are whole groups"""
    scales: Tensor
    """float16 [rows, groups]"""
    minima: Tensor | None
    """float16 [rows, groups] with 4 bits, else None"""

    def dequantized(self) -> Tensor:
        """float32 [rows, inputs]"""
        numbers = _groups(self.values.float())
        if self.minima is None:
            return ((numbers - ZERO_POINT) * self.scales.float()[..., None]).flatten(1)
        return torch.addcmul(self.minima.float()[..., None], numbers, self.scales.float()[..., None]).flatten(1)


def quantize(weights: Tensor) -> QuantizedRows:
    """To 8 bits: each group is divided by its largest number / 127. Missing inputs of the last group become zeros.

    float32 [rows, inputs]
    """
    parts = [_quantize(part) for part in torch.split(weights, max(1, _CHUNK_ELEMENTS // weights.shape[1]))]
    numbers, scales = (torch.cat(of_all) for of_all in zip(*parts, strict=True))
    return QuantizedRows(8, numbers, scales, None)


def _quantize(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers and scales."""
    groups = _groups(torch.nn.functional.pad(weights, (0, -weights.shape[1] % GROUP_SIZE)))
    scales = (groups.abs().amax(-1) / 127).half()
    numbers = (groups / scales.float()[..., None]).nan_to_num(0.0).round().clamp(-127, 127) + ZERO_POINT
    return numbers.to(torch.uint8).flatten(1), scales


def _groups(rows: Tensor) -> Tensor:
    """[rows, inputs] -> [rows, groups, inputs of a group]"""
    return rows.view(len(rows), -1, GROUP_SIZE)
