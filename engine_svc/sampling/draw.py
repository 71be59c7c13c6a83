"""Draws a token for each row: temperature, filters, then an exponential race between the remaining tokens.

In the race each token arrives after an exponential time divided by its probability, and the first one wins. This draws
each token with its probability (the Gumbel-max trick in another form), without normalising and without sorting.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Final

import numpy as np
from torch import Tensor

from engine_svc.sampling.filters import filters, survivors
from engine_svc.sampling.noise import Keys, TokenIds, exponentials, position_keys, token_hashes
from engine_svc.sampling.row_operations import Entries, RowOperations, Values
from engine_svc.sampling.state import SamplingState

_COLDEST: Final = 1e-30
_SLACK: Final = np.float32(1.001)


def draw(logits: Tensor, states: SequenceOf[SamplingState], operations: RowOperations) -> TokenIds:
    """Draw a token for each row of ``logits`` [rows, vocab], without NaN or +inf -> [rows]"""
    temperatures = np.maximum([state.params.temperature for state in states], _COLDEST).astype(np.float32)
    scores = operations.scaled(logits, temperatures)
    keys = _keys(states)
    some_filtered = [filters(state.params, logits.shape[1]) for state in states]
    chosen = np.empty(len(states), np.int64)
    for filtered in set(some_filtered):
        rows = [row for row, one in enumerate(some_filtered) if one == filtered]
        group = scores if len(rows) == len(states) else scores[rows]
        at = _survivors(group, [states[row] for row in rows]) if filtered else operations.contenders(group, keys[rows])
        chosen[rows] = winners(operations.read(group, at), keys[rows], *at)
    return chosen


def _keys(states: SequenceOf[SamplingState]) -> Keys:
    return position_keys(
        [state.params.seed for state in states],
        [state.sequence.choice_index for state in states],
        [state.position for state in states],
    )


def _survivors(scores: Tensor, states: SequenceOf[SamplingState]) -> Entries:
    rows, ids = survivors(scores, [state.params for state in states])
    return rows.cpu().numpy(), ids.cpu().numpy()


def deadlines(keys: Keys, best: TokenIds) -> Values:
    """When the best token of each row arrives, and a little later.

    The time -log(1 - u) / p is at least u / p, so a token with a larger u / p has lost. This leaves few contenders, the
    tokens for which logarithms must be taken.
    """
    times: Values = exponentials(token_hashes(keys, best)).astype(np.float32) * _SLACK
    return times


def winners(scores: Values, keys: Keys, rows: TokenIds, ids: TokenIds) -> TokenIds:
    """The token that arrives first in each row, of those given by ``rows`` and ``ids``; each row has one at least.

    ``scores`` are those of the tokens given. Times are float64, and computed here wherever the scores were: which unit
    took a logarithm must not decide a race.
    """
    with np.errstate(over="ignore"):
        times = exponentials(token_hashes(keys[rows], ids)) * np.exp(-scores.astype(np.float64))
    order = np.lexsort((ids, times, rows))
    first = np.searchsorted(rows[order], np.arange(len(keys)))
    return ids[order[first]]
