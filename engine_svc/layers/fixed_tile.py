"""Batch-invariant matrix products: a row of the result does not depend on the other rows.

A BLAS library selects its kernel by the number of rows, and each kernel rounds differently. Here every call for a
matrix has the same shape: ``TILE`` rows, all sizes padded to multiples of ``TILE``, every operand at the start of an
allocation. So the library always selects the same kernel. Whether that kernel computes all rows of a call alike is not
documented, and is therefore tested at load time (``is_batch_invariant``).
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

TILE: Final = 16


class FixedTileProduct:
    """``x W^T + b``, ``TILE`` rows at a time. ``weight`` [outputs, inputs], ``bias`` [outputs] or None."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.outputs, self.inputs = weight.shape
        missing_outputs, missing_inputs = -self.outputs % TILE, -self.inputs % TILE
        whole = not (missing_outputs or missing_inputs)
        self._weight = weight if whole else F.pad(weight, (0, missing_inputs, 0, missing_outputs))
        self._bias = bias if bias is None or whole else F.pad(bias, (0, missing_outputs))

    @property
    def weight(self) -> Tensor:
        """A view of the weights without padding [outputs, inputs]"""
        return self._weight[: self.outputs, : self.inputs]

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]"""
        out = torch.empty((len(x), self.outputs), dtype=x.dtype)
        for start in range(0, len(x), TILE):
            rows = x[start : start + TILE]
            out[start : start + TILE] = self._product(rows)[: len(rows), : self.outputs]
        return out

    def is_batch_invariant(self) -> bool:
        """Whether rows are bit-for-bit equal at any position and beside any other rows."""
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn((TILE, self.inputs), generator=generator).to(self._weight.dtype)
        expected = self._product(rows)
        alone = torch.cat([self._product(row[None])[:1] for row in rows])
        moved = (self._product(rows.roll(shift, 0)).roll(-shift, 0) for shift in range(1, TILE))
        return all(_equal(one, expected) for one in (alone, *moved))

    def _product(self, rows: Tensor) -> Tensor:
        """[up to TILE rows, inputs] -> [TILE, outputs padded to a multiple of TILE]"""
        tile = torch.zeros((TILE, self._weight.shape[1]), dtype=rows.dtype)
        tile[: len(rows), : self.inputs] = rows
        return F.linear(tile, self._weight, self._bias)


def _equal(one: Tensor, other: Tensor) -> bool:
    """Bit for bit; NaN equals NaN, which NaN weights produce."""
    return torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
