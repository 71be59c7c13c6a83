"""Quantised weights: integers of 4 or 8 bits in groups of 32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

GROUP_SIZE: Final = 32
"""Adjacent inputs that share a scale, as in the supported GGUF types"""

ZERO_POINT: Final = 128
"""Added to 8-bit values, so that they are unsigned"""

_CHUNK_ELEMENTS: Final = 1 << 20
"""Elements quantised at a time, which bounds the extra memory of quantisation"""


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows of a matrix: a weight is ``scale * value + minimum`` with 4 bits, ``scale * (value - 128)`` with 8 bits."""

    bits: int
    """4 or 8"""
    values: Tensor
    """uint8 [rows, inputs]; inputs are a multiple of the group size"""
    scales: Tensor
    """float16 [rows, groups]"""
    minima: Tensor | None
    """float16 [rows, groups] with 4 bits, else None"""

    def dequantized(self) -> Tensor:
        """float32 [rows, inputs]"""
        values = _groups(self.values.float())
        if self.minima is None:
            return ((values - ZERO_POINT) * self.scales.float()[..., None]).flatten(1)
        return torch.addcmul(self.minima.float()[..., None], values, self.scales.float()[..., None]).flatten(1)


def quantize(weights: Tensor) -> QuantizedRows:
    """Quantise to 8 bits: in each group scale = absmax / 127. The last group is padded with zeros.

    float32 [rows, inputs]
    """
    chunks = [_quantize(chunk) for chunk in torch.split(weights, max(1, _CHUNK_ELEMENTS // weights.shape[1]))]
    values, scales = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return QuantizedRows(8, values, scales, None)


def _quantize(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Values and scales."""
    groups = _groups(torch.nn.functional.pad(weights, (0, -weights.shape[1] % GROUP_SIZE)))
    scales = (groups.abs().amax(-1) / 127).half()
    values = (groups / scales.float()[..., None]).nan_to_num(0.0).round().clamp(-127, 127) + ZERO_POINT
    return values.to(torch.uint8).flatten(1), scales


def _groups(rows: Tensor) -> Tensor:
    """[rows, inputs] -> [rows, groups, group size]"""
    return rows.view(len(rows), -1, GROUP_SIZE)
