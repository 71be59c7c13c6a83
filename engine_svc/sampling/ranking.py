"""The best tokens of a row, in one fixed order."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

_ID_BITS: Final = 0xFFFFFFFF


class Ranking:
    """Orders the tokens of each row by value, best first, equals by lowest id.

    Value and id are packed into one integer with that order, so the order is total, and a row's ranking cannot depend
    on how a partial sort treats equals.
    """

    def __init__(self, values: Tensor) -> None:
        """``values`` float32 [rows, vocab], without NaN."""
        self._values = values
        bits = (values + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
        ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # an integer that orders as the float does
        reversed_ids = _ID_BITS - torch.arange(values.shape[1], device=values.device)
        self._keys = ordered.long().bitwise_left_shift_(32).bitwise_or_(reversed_ids)

    def best(self, count: int) -> tuple[Tensor, Tensor]:
        """Values and ids of the ``count`` best tokens, each [rows, count]."""
        keys = self._keys.topk(count).values
        ids = _ID_BITS - (keys & _ID_BITS)
        return self._values.gather(1, ids), ids
