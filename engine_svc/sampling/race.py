"""Random choice as a race: each token arrives after an exponential time divided by its probability; the first one wins.

This draws each token with its probability (Gumbel-max in other words), without normalising and without sorting.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from engine_svc.sampling.noise import Keys, TokenIds, exponentials, token_hashes

Scores = npt.NDArray[np.float32]
"""Logarithms of unnormalised probabilities, 0 for the best token"""

_SLACK: Final = np.float32(1.001)


def deadlines(keys: Keys, best: TokenIds) -> Scores:
    """When the best token of each row arrives, and a little later.

    The time -log(1 - u) / p is at least u / p, so a token with a larger u / p has lost. This leaves few contenders, the
    tokens for which logarithms must be taken.
    """
    times: Scores = exponentials(token_hashes(keys, best)).astype(np.float32) * _SLACK
    return times


def winners(scores: Scores, keys: Keys, rows: TokenIds, ids: TokenIds) -> TokenIds:
    """The token that arrives first in each row, of those given by ``rows`` and ``ids``; each row has one at least.

    ``scores`` are those of the tokens given. Times are float64, and computed here wherever the scores were: which unit
    took a logarithm must not decide a race.
    """
    with np.errstate(over="ignore"):
        times = exponentials(token_hashes(keys[rows], ids)) * np.exp(-scores.astype(np.float64))
    order = np.lexsort((ids, times, rows))
    first = np.searchsorted(rows[order], np.arange(len(keys)))
    return ids[order[first]]
