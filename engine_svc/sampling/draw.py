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
    """Draw a token for each row of ``logits`` [rows, vocab_size], without NaN or +inf -> [rows]"""
    temperatures = np.maximum([state.params.temperature for state in states], _COLDEST).astype(np.float32)
    scores = operations.scaled(logits, temperatures)
    keys = _keys(states)
    filtered = [filters(state.params, logits.shape[1]) for state in states]
    chosen = np.empty(len(states), np.int64)
    for is_filtered in set(filtered):
        rows = [row for row, one in enumerate(filtered) if one == is_filtered]
        group = scores if len(rows) == len(states) else scores[rows]
        at = (
            _filtered(group, [states[row] for row in rows]) if is_filtered else operations.contenders(group, keys[rows])
        )
        chosen[rows] = winners(operations.read(group, at), keys[rows], *at)
    return chosen


def _keys(states: SequenceOf[SamplingState]) -> Keys:
    return position_keys(
        [state.params.seed for state in states],
        [state.sequence.choice_index for state in states],
        [state.position for state in states],
    )


def _filtered(scores: Tensor, states: SequenceOf[SamplingState]) -> Entries:
    rows, ids = survivors(scores, [state.params for state in states])
    return rows.cpu().numpy(), ids.cpu().numpy()


def deadlines(keys: Keys, best: TokenIds) -> Values:
    """The arrival time of the best token of each row, plus a margin for rounding.

    The time -log(1 - u) / p is at least u / p, so a token with a larger u / p has lost. This leaves few contenders, for
    which logarithms must be computed.
    """
    times: Values = exponentials(token_hashes(keys, best)).astype(np.float32) * _SLACK
    return times


def winners(scores: Values, keys: Keys, rows: TokenIds, ids: TokenIds) -> TokenIds:
    """The token that arrives first in each row, of those given by ``rows`` and ``ids``; each row has at least one.

    ``scores`` are those of the given tokens. Times are float64 and computed on the CPU for every device: rounding of a
    device's logarithm must not decide a race.
    """
    with np.errstate(over="ignore"):
        times = exponentials(token_hashes(keys[rows], ids)) * np.exp(-scores.astype(np.float64))
    order = np.lexsort((ids, times, rows))
    first = np.searchsorted(rows[order], np.arange(len(keys)))
    return ids[order[first]]
