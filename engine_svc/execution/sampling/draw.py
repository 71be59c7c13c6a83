"""Random choice as a race: each token arrives after an exponential time divided by its probability; the first one wins.

This draws each token with its probability (Gumbel-max in other words), without normalising and without sorting.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from engine_svc.execution.sampling.filters import filters, survivors
from engine_svc.execution.sampling.noise import Keys, exponentials, position_keys, token_hashes
from engine_svc.execution.sampling.state import SamplingState

Scores = npt.NDArray[np.float32]
TokenIds = npt.NDArray[np.int64]

_COLDEST: Final = 1e-30
_SLACK: Final = np.float32(1.001)


def draw(logits: Scores, states: SequenceOf[SamplingState]) -> TokenIds:
    """Draw a token for each row of ``logits`` [rows, vocab], without NaN or +inf -> [rows]"""
    scores = _scaled(logits, [state.params.temperature for state in states])
    keys = _keys(states)
    filtered = np.array([filters(state.params, logits.shape[1]) for state in states])
    chosen = np.empty(len(states), np.int64)
    if filtered.any():
        rows, ids = survivors(
            torch.from_numpy(scores[filtered]),
            [state.params for state, some in zip(states, filtered, strict=True) if some],
        )
        chosen[filtered] = _winners(scores[filtered], keys[filtered], rows.numpy(), ids.numpy())
    if not filtered.all():
        rest = ~filtered
        chosen[rest] = _winners(scores[rest], keys[rest], *_contenders(scores[rest], keys[rest]))
    return chosen


def _scaled(logits: Scores, temperatures: list[float]) -> Scores:
    """Logarithms of unnormalised probabilities; 0 for the best token, also where all tokens are impossible."""
    best = logits.argmax(axis=-1)[:, None]
    peaks = np.take_along_axis(logits, best, axis=-1).clip(min=np.finfo(np.float32).min)
    divisors = np.maximum(temperatures, _COLDEST).astype(np.float32)[:, None]
    with np.errstate(over="ignore"):  # the difference of huge logits, or its quotient, may be -inf: impossible
        scores: Scores = (logits - peaks) / divisors
    np.put_along_axis(scores, best, np.float32(0.0), axis=-1)
    return scores


def _keys(states: SequenceOf[SamplingState]) -> Keys:
    return position_keys(
        [state.params.seed for state in states],
        [state.sequence.choice_index for state in states],
        [state.position for state in states],
    )


def _contenders(scores: Scores, keys: Keys) -> tuple[TokenIds, TokenIds]:
    """Rows and ids of the tokens that could still beat the best token of their row.

    The time -log(1 - u) / p is at least u / p, so whoever has a larger u / p than the best token's time has lost. This
    leaves few tokens for which logarithms must be taken.
    """
    vocab = np.arange(scores.shape[1])
    uniform = token_hashes(keys[:, None], vocab).astype(np.float32)
    uniform *= np.float32(2.0**-32)
    best = scores.argmax(axis=-1)
    deadline = exponentials(token_hashes(keys, best)).astype(np.float32)[:, None] * _SLACK
    # Far faster than nonzero() in two dimensions.
    return np.divmod(np.flatnonzero(uniform < deadline * np.exp(scores)), scores.shape[1])


def _winners(scores: Scores, keys: Keys, rows: TokenIds, ids: TokenIds) -> TokenIds:
    """The token that arrives first in each row, of those given as ``rows`` and ``ids``; each row has one at least.

    Times are float64: whether a vector or a scalar unit took a logarithm must not decide a race.
    """
    with np.errstate(over="ignore"):
        times = exponentials(token_hashes(keys[rows], ids)) * np.exp(-scores[rows, ids].astype(np.float64))
    order = np.lexsort((ids, times, rows))
    first = np.searchsorted(rows[order], np.arange(len(scores)))
    return ids[order[first]]
