"""Batch-invariant matrix products: a row does not depend on the rows beside it.

A library chooses its way through a product by the number of rows, and each way rounds differently. Here the library is
only ever asked for one product with each matrix: ``TILE`` rows, all sizes multiples of ``TILE``, every operand at the
start of an allocation. So whatever it chooses is chosen once. That it treats the rows of one call alike cannot be seen
from outside, and is tried out instead (``treats_rows_alike``).
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
        """The weights, wherever they lie now [outputs, inputs]"""
        return self._weight[: self.outputs, : self.inputs]

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]"""
        out = torch.empty((len(x), self.outputs), dtype=x.dtype)
        for start in range(0, len(x), TILE):
            rows = x[start : start + TILE]
            out[start : start + TILE] = self._product(rows)[: len(rows), : self.outputs]
        return out

    def treats_rows_alike(self) -> bool:
        """Whether rows that change their places and their neighbours stay the same to the last bit."""
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn((TILE, self.inputs), generator=generator).to(self._weight.dtype)
        expected = self._product(rows)
        alone = torch.cat([self._product(row[None])[:1] for row in rows])
        moved = (self._product(rows.roll(shift, 0)).roll(-shift, 0) for shift in range(1, TILE))
        return all(_same(one, expected) for one in (alone, *moved))

    def _product(self, rows: Tensor) -> Tensor:
        """[TILE or fewer rows, inputs] -> [TILE, outputs filled up to TILE]"""
        tile = torch.zeros((TILE, self._weight.shape[1]), dtype=rows.dtype)
        tile[: len(rows), : self.inputs] = rows
        return F.linear(tile, self._weight, self._bias)


def _same(one: Tensor, other: Tensor) -> bool:
    """Bit by bit, where weights that are NaN make NaN."""
    return torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
