"""The sampler's operations on whole rows of logits, on the device of the logits.

Tokens are drawn from the same noise on every device, and the few numbers that decide a race are computed on the CPU. So
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
"""Row indices, and a token id for each"""


class RowOperations(Protocol):
    """On logits or scores, float32 [rows, vocab_size]. Returned arrays are in CPU memory."""

    def best(self, logits: Tensor) -> tuple[TokenIds, Values]:
        """The best token of each row, of equals the lowest id, and its logit; NaN if the row has one."""

    def read(self, scores: Tensor, at: Entries) -> Values:
        """The values at these entries."""

    def change(self, logits: Tensor, at: Entries, change: Callable[[Values], Values]) -> None:
        """Apply ``change`` to the values at these entries, which must be distinct."""

    def mask(self, logits: Tensor, row: int, allowed: Mask, floor: float) -> None:
        """Set tokens of a row that are not allowed to -inf, and allowed ones to at least ``floor``."""

    def scaled(self, logits: Tensor, temperatures: Values) -> Tensor:
        """Logarithms of unnormalised probabilities; 0 for the best token, even if all tokens are impossible."""

    def contenders(self, scores: Tensor, keys: Keys) -> Entries:
        """Tokens that could still win the race of their row, ordered by row; see ``draw.py``."""
