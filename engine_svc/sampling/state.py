"""The sampler's state of a sequence between steps. All of it is derived from the sequence and can be rebuilt."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import cached_property

import numpy as np
import numpy.typing as npt

from engine_svc.constraint import Mask, Matcher
from engine_svc.request import SamplingParams
from engine_svc.scheduling.sequence import Sequence


class SamplingState:
    """One sequence's sampling parameters as arrays, and its token counts.

    Its history is prompt, output and ``drafts``.
    """

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.params: SamplingParams = sequence.request.sampling_params
        self.ending_ids = np.array(list(sequence.end_token_ids), np.int64)
        bias = dict(self.params.logit_bias)
        self.bias_ids = np.fromiter(bias, np.int64, len(bias))
        self.bias_values = np.fromiter(bias.values(), np.float32, len(bias))
        self.mask: Mask | None = None
        """Tokens allowed next, set by ``constrain``; None: all."""
        self.drafts: tuple[int, ...] = ()
        self._counter = _Counter(sequence)

    def after(self, drafts: tuple[int, ...]) -> SamplingState:
        """The state after these draft tokens, for this step only."""
        if not drafts:
            return self
        ahead = copy(self)
        ahead.drafts = drafts
        return ahead

    @cached_property
    def matcher(self) -> Matcher | None:
        """The matcher of the constraint, if there is one, made on first use. Raises the grammar's errors."""
        request = self.sequence.request
        grammar = request.grammar
        return None if grammar is None else grammar.matcher(request.eos_token_ids, self.sequence.end_token_ids)

    @property
    def position(self) -> int:
        """The number of output tokens before the one to be sampled."""
        return self.sequence.num_output_tokens + len(self.drafts)

    @property
    def penalized(self) -> bool:
        params = self.params
        return params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0

    @property
    def must_continue(self) -> bool:
        """Whether the sequence must not end yet (``min_tokens``)."""
        return self.position < self.params.min_tokens

    @property
    def output(self) -> list[int]:
        """All output tokens, draft tokens included."""
        return [*self.sequence.token_ids[self.sequence.num_prompt_tokens :], *self.drafts]

    @property
    def is_greedy(self) -> bool:
        """Whether the next token is the best of the raw logits, with no adjustment."""
        adjusted = self.penalized or self.must_continue or len(self.bias_ids) or self.matcher is not None
        return self.params.greedy and not adjusted

    def occurrences(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Each token of prompt and output, and its number of occurrences in the output."""
        counts = self._counter.up_to_now()
        if self.drafts:
            counts = counts.copy()
            _count(self.drafts, counts)
        return np.fromiter(counts, np.int64, len(counts)), np.fromiter(counts.values(), np.float32, len(counts))


class _Counter:
    """Token counts of a sequence's output; zero for tokens of the prompt alone."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._counts: dict[int, int] = dict.fromkeys(sequence.request.prompt_token_ids, 0)
        self._num_counted = sequence.num_prompt_tokens

    def up_to_now(self) -> dict[int, int]:
        """The counts, still owned by the counter: copy before changing."""
        token_ids = self._sequence.token_ids
        _count(token_ids[self._num_counted :], self._counts)
        self._num_counted = len(token_ids)
        return self._counts


def _count(token_ids: Iterable[int], counts: dict[int, int]) -> None:
    for token in token_ids:
        counts[token] = counts.get(token, 0) + 1
