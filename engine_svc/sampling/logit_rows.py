"""What the sampler reads: the logits of a step, row by row."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class LogitRows(Protocol):
    """Logits of some rows of a step. A tensor [rows, vocab_size] is one; others compute what is read.

    They need not be held all at once: those of a long prompt and a large vocabulary take more memory than the rest of a
    step. Valid until the executor's next step.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor:
        """[rows, vocab_size]"""
