"""Draws a token for each row: temperature, filters, and a race between what is left."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Final

import numpy as np
from torch import Tensor

from engine_svc.sampling.filters import filters, survivors
from engine_svc.sampling.noise import Keys, TokenIds, position_keys
from engine_svc.sampling.race import winners
from engine_svc.sampling.row_operations import Entries, RowOperations
from engine_svc.sampling.state import SamplingState

_COLDEST: Final = 1e-30


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
