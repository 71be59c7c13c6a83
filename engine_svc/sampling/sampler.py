"""Samples the next token of each sequence, in one pass over the batch, in float32, on the device of the logits.

The order is: log probabilities from the raw logits; min_tokens, logit bias, penalties, constraint masks; then the best
token, or temperature, min-p, top-k, top-p and the draw. Each row is a function of its own logits and its own sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from typing import Final

import numpy as np
import torch
from torch import Tensor

from engine_svc.output import Sampled, TokenLogprobs
from engine_svc.sampling.adjust import adjust
from engine_svc.sampling.constrain import conclude, constrain
from engine_svc.sampling.cpu_rows import CpuRows
from engine_svc.sampling.device_rows import DeviceRows
from engine_svc.sampling.draw import draw
from engine_svc.sampling.logprobs import token_logprobs
from engine_svc.sampling.noise import TokenIds
from engine_svc.sampling.row_operations import RowOperations
from engine_svc.sampling.state import SamplingState
from engine_svc.sampling.verify import verify
from engine_svc.scheduling.sequence import Sequence

_GROUP_ELEMENTS: Final = 1 << 18


class Sampler:
    """Keeps some state for each sequence, until ``release``."""

    def __init__(self, operations: RowOperations | None = None) -> None:
        """``operations``: for the device of the logits, by default the CPU."""
        self._operations = operations or CpuRows()
        self._states: dict[int, SamplingState] = {}

    @property
    def num_known(self) -> int:
        """Number of sequences with state."""
        return len(self._states)

    def sample(
        self, logits: Tensor, sequences: SequenceOf[Sequence], drafts: SequenceOf[tuple[int, ...]] | None = None
    ) -> list[Sampled | Exception]:
        """One token for each sequence, and one more for each of its draft tokens that is accepted.

        ``logits`` [rows, vocab_size] has for each sequence the row after its last token, then the rows after its draft
        tokens. A row with NaN or +inf gets an exception.
        """
        if drafts is None or not any(drafts):
            return self._sample_rows(logits, [self._state(sequence) for sequence in sequences])
        states = [
            self._state(sequence).after(draft[:count])
            for sequence, draft in zip(sequences, drafts, strict=True)
            for count in range(len(draft) + 1)
        ]
        return verify(self._sample_rows(logits, states), drafts)

    def _sample_rows(self, logits: Tensor, states: SequenceOf[SamplingState]) -> list[Sampled | Exception]:
        """The next token of each row of ``logits`` [rows, vocab_size]."""
        logits = logits.float()
        token_ids, best = self._operations.best(logits)
        finite = (best < np.inf).tolist()
        results: list[Sampled | Exception | None] = [
            constrain(state) if finite[row] else FloatingPointError("logits are not finite")
            for row, state in enumerate(states)
        ]
        valid = [(row, state) for row, state in enumerate(states) if results[row] is None]
        for rows in _groups((row for row, state in valid if not state.is_greedy), logits.shape[1]):
            token_ids[rows] = self._choose(logits[rows], [states[row] for row in rows])
        logprobs: dict[int, tuple[TokenLogprobs, ...]] = {}
        for rows in _groups((row for row, state in valid if state.params.logprobs is not None), logits.shape[1]):
            num_top = [states[row].params.logprobs or 0 for row in rows]
            found = token_logprobs(logits[rows], token_ids[rows].tolist(), num_top)
            logprobs |= {row: (entry,) for row, entry in zip(rows, found, strict=True)}
        for row, state in valid:
            results[row] = conclude(state, Sampled((int(token_ids[row]),), logprobs.get(row, ())))
        return [result for result in results if result is not None]

    def _choose(self, logits: Tensor, states: list[SamplingState]) -> TokenIds:
        """A token for each row of ``logits`` [rows, vocab_size], which are overwritten."""
        adjust(logits, states, self._operations)
        token_ids, _ = self._operations.best(logits)
        random = [row for row, state in enumerate(states) if not state.params.greedy]
        if random:
            drawn = logits if len(random) == len(states) else logits[random]
            token_ids[random] = draw(drawn, [states[row] for row in random], self._operations)
        return token_ids

    def release(self, sequence: Sequence) -> None:
        self._states.pop(sequence.seq_id, None)

    def _state(self, sequence: Sequence) -> SamplingState:
        state = self._states.get(sequence.seq_id)
        if state is None:
            state = self._states[sequence.seq_id] = SamplingState(sequence)
        return state


def row_operations(device: torch.device) -> RowOperations:
    """The row operations for logits on this device."""
    return CpuRows() if device.type == "cpu" else DeviceRows(device)


def _groups(rows: Iterable[int], vocab_size: int) -> Iterator[list[int]]:
    """The rows in groups, small enough that a group's values stay in the processor's cache, and memory is bounded."""
    size = max(1, _GROUP_ELEMENTS // vocab_size)
    remaining = list(rows)
    for start in range(0, len(remaining), size):
        yield remaining[start : start + size]
