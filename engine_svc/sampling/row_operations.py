"""What the sampler does to whole rows of logits, on the device where they are.

Tokens are drawn from the same noise on every device, and the few numbers that decide a race are computed by the CPU. So
equal logits give equal tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from engine_svc.constraint import Mask
from engine_svc.sampling.noise import Keys, TokenIds

Values = npt.NDArray[np.float32]
Entries = tuple[npt.NDArray[np.int64], TokenIds]
"""Rows, and a token id of each"""


class RowOperations(Protocol):
    """On logits or scores, float32 [rows, vocab]. What is returned as an array is in the CPU's memory."""

    def best(self, logits: Tensor) -> tuple[TokenIds, Values]:
        """The best token of each row, the lowest id of equals, and its logit; NaN where a row has one."""

    def read(self, scores: Tensor, at: Entries) -> Values:
        """The values at these entries."""

    def change(self, logits: Tensor, at: Entries, change: Callable[[Values], Values]) -> None:
        """Replace the values at these entries, which differ, by what ``change`` makes of them."""

    def mask(self, logits: Tensor, row: int, allowed: Mask, floor: float) -> None:
        """Put -inf into a row for what is not allowed, and ``floor`` for what is less but allowed."""

    def scaled(self, logits: Tensor, temperatures: Values) -> Tensor:
        """Logarithms of unnormalised probabilities; 0 for the best token, also where all tokens are impossible."""

    def contenders(self, scores: Tensor, keys: Keys) -> Entries:
        """Tokens that could still win the race of their row, ordered by row; see ``draw.py``."""
