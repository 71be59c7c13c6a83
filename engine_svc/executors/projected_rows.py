"""Logits that are made when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ProjectedRows:
    """Hidden states that the output matrix turns into logits (see ``engine_svc.sampling.logit_rows.LogitRows``)."""

    hidden: Tensor
    """[rows, hidden_size]"""
    project: Callable[[Tensor], Tensor]
    """[rows, hidden_size] -> [rows, vocab_size]"""

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, rows: slice, /) -> Tensor:
        return self.project(self.hidden[rows])
