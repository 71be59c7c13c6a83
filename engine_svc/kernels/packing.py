"""Weights in the layout that the kernels multiply: see ``csrc/matrix.h``, where it is described."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_svc.kernels.memory import Arena
from engine_svc.kernels.structures import Matrix
from engine_svc.weights.quantized import GROUP_SIZE, QuantizedRows

_CHUNK_BYTES: Final = 1 << 22
"""Bytes put into order at a time, which bounds the memory that it takes on top of the matrix"""


class Format(IntEnum):
    """``PellucidFormat`` in matrix.h. Weights are none of ``INT16``, and activations none of ``INT4``."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT4 = 3
    INT16 = 4


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A weight matrix that the kernels can multiply with."""

    format: Format
    outputs: int
    inputs: int
    panels: Tensor
    """uint8 [panels, bytes]"""

    def structure(self, bias: Tensor | None = None) -> Matrix:
        """What the kernels take, with ``bias`` float32 [outputs]. Both must be kept as long as that is used."""
        address = None if bias is None else bias.data_ptr()
        return Matrix(
            self.panels.data_ptr(), address, self.outputs, self.inputs, self.format, self.panels.shape[1]
        )  # fmt: skip


def pack(weights: Tensor | QuantizedRows, lanes: int, arena: Arena) -> PackedMatrix:
    """``weights`` float32 or bfloat16 [outputs, inputs], or integers; ``lanes`` outputs make a panel."""
    return (
        _pack_integers(weights, lanes, arena)
        if isinstance(weights, QuantizedRows)
        else _pack_floats(weights, lanes, arena)
    )


def _pack_floats(weights: Tensor, lanes: int, arena: Arena) -> PackedMatrix:
    outputs, inputs = weights.shape
    per_word = 4 // weights.itemsize
    padded = F.pad(weights, (0, -inputs % per_word, 0, -outputs % lanes))
    words = padded.view(-1, lanes, padded.shape[1] // per_word, per_word).transpose(1, 2)
    kind = Format.FLOAT32 if weights.dtype == torch.float32 else Format.BFLOAT16
    return PackedMatrix(kind, outputs, inputs, _side_by_side([words], arena))


def _pack_integers(weights: QuantizedRows, lanes: int, arena: Arena) -> PackedMatrix:
    outputs, inputs = weights.values.shape
    missing = -outputs % lanes
    numbers = F.pad(weights.values, (0, 0, 0, missing)).view(-1, lanes, inputs // 4, 4).transpose(1, 2)
    if weights.bits == 4:  # [panels, words, lanes, 4], two words in one
        numbers = numbers[:, 0::2] | numbers[:, 1::2] << 4
    scales = [weights.scales] if weights.minima is None else [weights.scales, weights.minima]
    halves = [F.pad(x, (0, 0, 0, missing)).view(-1, lanes, inputs // GROUP_SIZE).transpose(1, 2) for x in scales]
    kind = Format.INT4 if weights.bits == 4 else Format.INT8
    return PackedMatrix(kind, outputs, inputs, _side_by_side([numbers, *halves], arena))


def _side_by_side(parts: list[Tensor], arena: Arena) -> Tensor:
    """What each part has for a panel, one after the other; each [panels, ...] -> uint8 [panels, bytes]"""
    num_panels = len(parts[0])
    sizes = [part[0].numel() * part.element_size() for part in parts]
    panels = arena.take(num_panels * sum(sizes)).view(num_panels, -1)
    step = max(1, _CHUNK_BYTES // sum(sizes))
    for part, place in zip(parts, torch.split(panels, sizes, dim=1), strict=True):
        for some, there in zip(torch.split(part, step), torch.split(place, step), strict=True):
            there.copy_(some.contiguous().flatten(1).view(torch.uint8))
    return panels
