"""A model without weights: it emits the tokens of the request's script, or a fixed text. Needs no torch.

It is a ``Runner`` of its own and not an ``Executor`` of the model runner, because an executor returns logits, and its
scripts are not expressible as logits: a step may yield several tokens or none, be delayed, or end the choice. It would
also be slower: with 64 sequences a token takes 9 us here, while preparing and sampling alone take 105 us with the byte
vocabulary, and milliseconds with one of 49,152 tokens (one core).

Everything around it is real: sequences are scheduled, chunked, preempted and take cache blocks like any others. Of the
sampling parameters it obeys those that end a choice, and log probabilities; ``seed`` and ``temperature`` only choose
among its fixed texts.
"""

from __future__ import annotations

import hashlib
import math
import time
from array import array
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Final

from engine_svc.output import PromptLogprobs, Sampled, TokenLogprobs
from engine_svc.request import Request, Script
from engine_svc.runners.interface import RunnerInfo
from engine_svc.scheduling.sequence import Sequence
from engine_svc.scheduling.step import ScheduledSequence

OPEN_ENDED_TOKENS: Final = 64
"""Length of an output with neither a script nor ``max_tokens``."""

_FIRST_ID: Final = 65
_NUM_IDS: Final = 58
_TEXT_PAGE: Final = 64


class SimulatedRunner:
    """See ``engine_svc.runners.interface.Runner``. Each step takes ``step_seconds``."""

    def __init__(self, info: RunnerInfo, *, step_seconds: float = 0.0) -> None:
        self._info = info
        self._step_seconds = step_seconds
        self._outputs: dict[int, _Output] = {}

    @property
    def info(self) -> RunnerInfo:
        return self._info

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        time.sleep(self._step_seconds)
        now = time.monotonic()
        return [self._result(scheduled, now) for scheduled in batch if scheduled.has_output]

    def release(self, sequence: Sequence) -> None:
        self._outputs.pop(sequence.seq_id, None)

    def _result(self, scheduled: ScheduledSequence, now: float) -> Sampled:
        sampled = self._sample(scheduled.sequence, now) if scheduled.samples else Sampled(())
        if not (rows := scheduled.prompt_rows):
            return sampled
        prompt, count = scheduled.sequence.request, scheduled.sequence.request.sampling_params.prompt_logprobs or 0
        token_ids = prompt.prompt_token_ids[rows.start + 1 : rows.stop + 1]
        logprobs = tuple(_halving(token_id, count, self._info.vocab_size) for token_id in token_ids)
        return replace(sampled, prompt=PromptLogprobs(token_ids, logprobs))

    def _sample(self, sequence: Sequence, now: float) -> Sampled:
        output = self._outputs.get(sequence.seq_id)
        if output is None:
            output = self._outputs[sequence.seq_id] = _Output(sequence, self._info, now)
        return output.next(now)


class _Output:
    """The remaining output of one sequence. Kept over preemptions, like the sequence's tokens."""

    def __init__(self, sequence: Sequence, info: RunnerInfo, now: float) -> None:
        request = sequence.request
        self._sequence = sequence
        self._params = request.sampling_params
        self._script = request.script or Script(steps=())
        self._num_steps = len(self._script.steps) * self._script.repeat
        self._num_played, self._num_emitted = self._find(len(request.output_token_ids))
        self._due_at = now + self._script.delay
        self._text = _FixedText(request, sequence.choice_index)
        self._eos = min(request.eos_token_ids, default=None)
        self._vocab_size = info.vocab_size

    def _find(self, num_tokens: int) -> tuple[int, int]:
        """Position in a script resumed after ``num_tokens``: number of finished steps, and tokens of the next."""
        if not num_tokens:
            return 0, 0
        lengths = [len(step) for step in self._script.steps]
        rounds = min(self._script.repeat, num_tokens // sum(lengths)) if any(lengths) else self._script.repeat
        num_played, num_tokens = rounds * len(lengths), num_tokens - rounds * sum(lengths)
        while num_played < self._num_steps and lengths[num_played % len(lengths)] <= num_tokens:
            num_tokens -= lengths[num_played % len(lengths)]
            num_played += 1
        return num_played, num_tokens

    def next(self, now: float) -> Sampled:
        """The tokens of the next step, or none if it is not due yet."""
        if now < self._due_at:
            return Sampled((), resume_at=self._due_at)
        if self._num_played < self._num_steps:
            return self._play(now)
        if self._is_over and self._may_end(num_new=0):
            return self._end()
        return self._emit((self._text[self._sequence.num_output_tokens],))

    def _play(self, now: float) -> Sampled:
        token_ids = self._script.steps[self._num_played % len(self._script.steps)][self._num_emitted :]
        self._num_played, self._num_emitted = self._num_played + 1, 0
        if self._num_played < self._num_steps:
            self._due_at = now + self._script.delay
            return self._emit(token_ids, resume_at=self._due_at)
        ended = self._script.finish == "length" and self._may_end(num_new=len(token_ids))
        return self._emit(token_ids, ended=ended)

    def _end(self) -> Sampled:
        if self._script.finish == "length" or self._eos is None:
            return Sampled((), ended=True)
        return self._emit((self._eos,))

    @property
    def _is_over(self) -> bool:
        """Whether script or open-ended text are over. If the choice must not end yet, the fixed text continues."""
        request = self._sequence.request
        if request.script is not None:
            return True
        return request.open_ended and self._sequence.num_output_tokens >= OPEN_ENDED_TOKENS

    def _may_end(self, num_new: int) -> bool:
        if self._params.ignore_eos and self._script.finish == "stop":
            return False
        return self._sequence.num_output_tokens + num_new >= self._params.min_tokens

    def _emit(self, token_ids: tuple[int, ...], *, resume_at: float = 0.0, ended: bool = False) -> Sampled:
        count = self._params.logprobs
        if count is None:
            return Sampled(token_ids, (), resume_at, ended)
        logprobs = tuple(_halving(token_id, count, self._vocab_size) for token_id in token_ids)
        return Sampled(token_ids, logprobs, resume_at, ended)


def _halving(token_id: int, count: int, vocab_size: int) -> TokenLogprobs:
    """Half of the probability for the chosen token, half of the rest for the next id, and so on."""
    top = tuple(((token_id + rank) % vocab_size, -math.log(2) * (rank + 1)) for rank in range(count))
    return TokenLogprobs(-math.log(2), top)


class _FixedText:
    """Pseudo-random printable ASCII, a function of prompt, position, and unless greedy of seed and choice."""

    def __init__(self, request: Request, index: int) -> None:
        params = request.sampling_params
        noise = (0, 0) if params.greedy else (params.seed, index)
        self._key = hashlib.sha256(array("Q", (*noise, *request.prompt_token_ids)).tobytes()).digest()
        self._page_number = -1
        self._page = b""

    def __getitem__(self, position: int) -> int:
        number, offset = divmod(position, _TEXT_PAGE)
        if number != self._page_number:
            page = hashlib.blake2b(number.to_bytes(8, "little"), key=self._key, digest_size=_TEXT_PAGE)
            self._page_number, self._page = number, page.digest()
        return _FIRST_ID + self._page[offset] % _NUM_IDS
