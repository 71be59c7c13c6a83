"""The logits of a step, as the sampler reads them: by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class LogitRows(Protocol):
    """Logits of some rows of a step. A tensor [rows, vocab_size] is one; ``ProjectedRows`` computes rows on read.

    They need not all be in memory: with a long prompt and a large vocabulary they take more memory than the rest of a
    step. Valid until the executor's next step.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor:
        """[rows, vocab_size]"""


@dataclass(frozen=True, slots=True)
class ProjectedRows:
    """Hidden states that the output matrix turns into logits when they are read. See ``LogitRows``."""

    hidden: Tensor
    """[rows, hidden_size]"""
    project: Callable[[Tensor], Tensor]
    """[rows, hidden_size] -> [rows, vocab_size]"""

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, rows: slice, /) -> Tensor:
        return self.project(self.hidden[rows])
