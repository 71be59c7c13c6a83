"""Packs weights into the layout of the kernels, which ``csrc/matrix.h`` describes."""

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
"""Bytes packed at a time, which bounds the extra memory of packing"""


class Format(IntEnum):
    """``PellucidFormat`` in structures.h. ``INT16`` is for activations only, ``INT4`` for weights only."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT4 = 3
    INT16 = 4


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A weight matrix in the layout of the kernels."""

    format: Format
    outputs: int
    inputs: int
    panels: Tensor
    """uint8 [panels, bytes]"""

    def structure(self, bias: Tensor | None = None, *, tile_rows: int = 0) -> Matrix:
        """The kernels' argument, with ``bias`` float32 [outputs]. It holds addresses: keep both while it is used.

        From ``tile_rows`` rows on, integers are multiplied by matrix tiles; 0: never.
        """
        return Matrix(
            panels=self.panels.data_ptr(),
            bias=None if bias is None else bias.data_ptr(),
            outputs=self.outputs,
            inputs=self.inputs,
            format=self.format,
            panel_bytes=self.panels.shape[1],
            tile_rows=tile_rows,
        )


def pack(weights: Tensor | QuantizedRows, lanes: int, arena: Arena) -> PackedMatrix:
    """``weights`` are float32 or bfloat16 [outputs, inputs], or quantised; ``lanes`` are the outputs per panel."""
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
    return PackedMatrix(kind, outputs, inputs, _concatenate([words], arena))


def _pack_integers(weights: QuantizedRows, lanes: int, arena: Arena) -> PackedMatrix:
    outputs, inputs = weights.values.shape
    padding = -outputs % lanes
    values = F.pad(weights.values, (0, 0, 0, padding)).view(-1, lanes, inputs // 4, 4).transpose(1, 2)
    if weights.bits == 4:  # [panels, words, lanes, 4], two words in one
        values = values[:, 0::2] | values[:, 1::2] << 4
    scales = [weights.scales] if weights.minima is None else [weights.scales, weights.minima]
    halves = [F.pad(x, (0, 0, 0, padding)).view(-1, lanes, inputs // GROUP_SIZE).transpose(1, 2) for x in scales]
    kind = Format.INT4 if weights.bits == 4 else Format.INT8
    return PackedMatrix(kind, outputs, inputs, _concatenate([values, *halves], arena))


def _concatenate(parts: list[Tensor], arena: Arena) -> Tensor:
    """Concatenate the bytes of all parts panel by panel; each [panels, ...] -> uint8 [panels, bytes]"""
    num_panels = len(parts[0])
    sizes = [part[0].numel() * part.element_size() for part in parts]
    panels = arena.take(num_panels * sum(sizes)).view(num_panels, -1)
    step = max(1, _CHUNK_BYTES // sum(sizes))
    for part, destination in zip(parts, torch.split(panels, sizes, dim=1), strict=True):
        for chunk, target in zip(torch.split(part, step), torch.split(destination, step), strict=True):
            target.copy_(chunk.contiguous().flatten(1).view(torch.uint8))
    return panels
