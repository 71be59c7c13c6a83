"""Changes to the logits before a token is sampled: min_tokens, logit bias, penalties, constraint masks.

Adjusted values stay finite, so that no later step computes infinity minus infinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import Final

import numpy as np
import numpy.typing as npt
from torch import Tensor

from engine_svc.request import SamplingParams
from engine_svc.sampling.row_operations import Entries, RowOperations, Values
from engine_svc.sampling.state import SamplingState

_LARGEST: Final = np.float32(1e30)


def adjust(logits: Tensor, states: SequenceOf[SamplingState], operations: RowOperations) -> None:
    """Change ``logits`` float32 [rows, vocab] in place, one state for each row."""
    _forbid_endings(logits, states, operations)
    _add_biases(logits, states, operations)
    _penalize(logits, states, operations)
    _mask(logits, states, operations)


def _forbid_endings(logits: Tensor, states: SequenceOf[SamplingState], operations: RowOperations) -> None:
    early = [(row, state.ending_ids) for row, state in enumerate(states) if state.must_continue and state.mask is None]
    if early:
        operations.change(logits, _entries(early), lambda values: np.full_like(values, -np.inf))


def _add_biases(logits: Tensor, states: SequenceOf[SamplingState], operations: RowOperations) -> None:
    biased = [(row, state) for row, state in enumerate(states) if len(state.bias_ids)]
    if biased:
        # Half, so that no bias lifts a forbidden token.
        biases = np.concatenate([state.bias_values for _, state in biased]).clip(-_LARGEST / 2, _LARGEST / 2)
        at = _entries((row, state.bias_ids) for row, state in biased)
        operations.change(logits, at, lambda values: values.clip(-_LARGEST, _LARGEST) + biases)


def _penalize(logits: Tensor, states: SequenceOf[SamplingState], operations: RowOperations) -> None:
    penalized = [(row, state) for row, state in enumerate(states) if state.penalized]
    if penalized:
        ids, counts = zip(*(state.occurrences() for _, state in penalized), strict=True)
        at = _entries(zip((row for row, _ in penalized), ids, strict=True))
        operations.change(logits, at, _Penalties([state.params for _, state in penalized], counts))


class _Penalties:
    """Repetition as in CTRL (Keskar et al. 2019), over prompt and output; OpenAI's penalties over the output alone."""

    def __init__(self, params: SequenceOf[SamplingParams], counts: SequenceOf[Values]) -> None:
        """``counts``: for each sequence, the number of occurrences in the output of each token of prompt and output."""
        lengths = [len(each) for each in counts]
        self._repetition = np.repeat(np.array([p.repetition_penalty for p in params], np.float32), lengths)
        presence = np.repeat(np.array([p.presence_penalty for p in params], np.float32), lengths)
        frequency = np.repeat(np.array([p.frequency_penalty for p in params], np.float32), lengths)
        count = np.concatenate(counts)
        self._reduction = frequency * count + presence * (count > 0)

    def __call__(self, values: Values) -> Values:
        values = values.clip(-_LARGEST, _LARGEST)
        values = np.where(values > 0, values / self._repetition, values * self._repetition)
        penalized: Values = (values - self._reduction).clip(-_LARGEST, _LARGEST)
        return penalized


def _mask(logits: Tensor, states: SequenceOf[SamplingState], operations: RowOperations) -> None:
    """Last, so that nothing lifts a masked token. Allowed tokens stay possible, however unlikely."""
    for row, state in enumerate(states):
        if state.mask is not None:
            operations.mask(logits, row, state.mask, -float(_LARGEST))


def _entries(
    rows_and_ids: Iterable[tuple[int, npt.NDArray[np.int64]]],
) -> Entries:
    """The entries of these tokens in these rows."""
    pairs = list(rows_and_ids)
    rows = np.repeat([row for row, _ in pairs], [len(ids) for _, ids in pairs])
    return rows, np.concatenate([ids for _, ids in pairs])
