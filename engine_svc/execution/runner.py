"""The border between deciding what to compute (scheduling/, no torch) and computing it (execution/)."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from engine_svc.request import Sampled
from engine_svc.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """A run of tokens of one sequence to be computed in this step.

    The tokens are ``sequence.token_ids[start : start + num_tokens]``; keys and values of all tokens before ``start``
    are in the cache already, and ``sequence.block_table`` has room for these. When ``samples`` is true the run ends
    with the last known token, so the step must choose what follows it.
    """

    sequence: Sequence
    start: int
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Whether the step chooses a next token for this sequence."""
        return self.start + self.num_tokens == self.sequence.num_tokens

    @property
    def prompt_rows(self) -> range:
        """Positions of the run that tell how likely the prompt's next token was, where that is still owed."""
        sequence = self.sequence
        if not sequence.owes_prompt_logprobs:
            return range(0)
        first = max(self.start, sequence.num_prompt_logprobs)
        return range(first, max(first, min(self.start + self.num_tokens, sequence.num_prompt_tokens - 1)))

    @property
    def answers(self) -> bool:
        """Whether the step has anything to say of this sequence."""
        return self.samples or len(self.prompt_rows) > 0


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """What a runner loaded, and its limits."""

    model_path: str
    model_type: str
    dtype: str
    vocab_size: int
    max_model_len: int
    num_blocks: int
    eos_token_ids: tuple[int, ...]
    simulated: bool = False


class DeviceLost(Exception):
    """The device cannot compute any more: this process must end. Raised by ``Runner.execute``."""


class Runner(Protocol):
    """Computes one step. Owned and called by the step loop's thread alone."""

    @property
    def info(self) -> RunnerInfo:
        """What was loaded; does not change."""

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        """Compute a step; one result for each entry that ``answers``, in order, without tokens unless it ``samples``.

        An exception in the list is the fault of that one sequence. Raising is a fault of the whole step, and
        ``DeviceLost`` one of the process. Does not change the sequences.
        """

    def forget(self, sequence: Sequence) -> None:
        """Drop whatever is kept for a sequence that ended; called once for each."""
