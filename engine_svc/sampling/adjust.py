"""What requests do to their logits before a token is chosen: forbidden endings, biases, penalties, masks.

Adjusted values are kept finite, so that whatever follows never meets infinity minus infinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine_svc.sampling.state import SamplingState

Logits = npt.NDArray[np.float32]

_LARGEST: Final = np.float32(1e30)


def adjust(logits: Logits, states: SequenceOf[SamplingState]) -> None:
    """Change ``logits`` [rows, vocab] in place, one state for each row."""
    _forbid_endings(logits, states)
    _add_biases(logits, states)
    _penalize(logits, states)
    _mask(logits, states)


def _forbid_endings(logits: Logits, states: SequenceOf[SamplingState]) -> None:
    early = [(row, state.ending_ids) for row, state in enumerate(states) if state.must_go_on and state.mask is None]
    if early:
        logits[_entries(early)] = -np.inf


def _add_biases(logits: Logits, states: SequenceOf[SamplingState]) -> None:
    biased = [(row, state) for row, state in enumerate(states) if len(state.bias_ids)]
    if biased:
        at = _entries((row, state.bias_ids) for row, state in biased)
        # Half, so that no bias lifts what is forbidden.
        values = np.concatenate([state.bias_values for _, state in biased]).clip(-_LARGEST / 2, _LARGEST / 2)
        logits[at] = logits[at].clip(-_LARGEST, _LARGEST) + values


def _penalize(logits: Logits, states: SequenceOf[SamplingState]) -> None:
    """Repetition as in CTRL (Keskar et al. 2019), over prompt and output; OpenAI's penalties over the output alone."""
    penalized = [(row, state, *state.occurrences()) for row, state in enumerate(states) if state.penalized]
    if not penalized:
        return
    at = _entries((row, ids) for row, _, ids, _ in penalized)
    counts = np.concatenate([counts for _, _, _, counts in penalized])
    lengths = [len(ids) for _, _, ids, _ in penalized]
    params = [state.params for _, state, _, _ in penalized]
    repetition = np.repeat(np.array([p.repetition_penalty for p in params], np.float32), lengths)
    presence = np.repeat(np.array([p.presence_penalty for p in params], np.float32), lengths)
    frequency = np.repeat(np.array([p.frequency_penalty for p in params], np.float32), lengths)
    values = logits[at].clip(-_LARGEST, _LARGEST)
    values = np.where(values > 0, values / repetition, values * repetition)
    values -= frequency * counts + presence * (counts > 0)
    logits[at] = values.clip(-_LARGEST, _LARGEST)


def _mask(logits: Logits, states: SequenceOf[SamplingState]) -> None:
    """Last, so that nothing lifts what a mask forbids. What it allows stays possible, however unlikely."""
    for row, state in enumerate(states):
        if state.mask is not None:
            logits[row] = np.where(state.mask, logits[row].clip(min=-_LARGEST), -np.inf)


def _entries(
    rows_and_ids: Iterable[tuple[int, npt.NDArray[np.int64]]],
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Index of the given tokens in the given rows."""
    pairs = list(rows_and_ids)
    rows = np.repeat([row for row, _ in pairs], [len(ids) for _, ids in pairs])
    return rows, np.concatenate([ids for _, ids in pairs])
