"""A step: the batch that the scheduler plans and a runner computes, and its outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from engine_svc.output import ChoiceOutput
from engine_svc.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The limits of one step. ``max_num_batched_tokens`` is at least ``max_num_seqs``, so that every running sequence
    can progress."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_chunk: int


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """A run of tokens of one sequence to be computed in this step.

    All tokens before ``start`` are in the KV cache already, and ``sequence.block_table`` has blocks for the
    ``num_tokens`` of the run. When ``samples`` is true, the run contains the last known token, so the step samples the
    next one. The run then continues with ``drafts``, draft tokens: the step samples one more token after each draft
    token it accepts.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    drafts: tuple[int, ...] = ()

    @property
    def token_ids(self) -> list[int]:
        """The run's tokens, draft tokens included."""
        return [*self.sequence.token_ids[self.start : self._end], *self.drafts]

    @property
    def samples(self) -> bool:
        """Whether the step samples a next token for this sequence."""
        return self._end == self.sequence.num_tokens

    @property
    def _end(self) -> int:
        """Position of the first draft token."""
        return self.start + self.num_tokens - len(self.drafts)

    @property
    def prompt_rows(self) -> range:
        """Positions of the run whose logits give prompt log probabilities that are still to be reported."""
        sequence = self.sequence
        if not sequence.needs_prompt_logprobs:
            return range(0)
        first = max(self.start, sequence.num_prompt_logprobs)
        return range(first, max(first, min(self.start + self.num_tokens, sequence.num_prompt_tokens - 1)))

    @property
    def has_output(self) -> bool:
        """Whether the step has a result for this sequence."""
        return self.samples or len(self.prompt_rows) > 0


@dataclass(slots=True)
class Plan:
    """One step: what to compute, and which sequences are admitted or preempted for it."""

    batch: list[ScheduledSequence] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    num_tokens: int = 0

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        """Compute this many tokens of a sequence, from its first uncomputed one."""
        self.batch.append(ScheduledSequence(sequence, sequence.num_computed_tokens, num_tokens))
        self.num_tokens += num_tokens

    def add_drafts(self, row: int, drafts: tuple[int, ...]) -> None:
        """Compute these draft tokens too, after the tokens of an entry that samples."""
        entry = self.batch[row]
        self.batch[row] = replace(entry, num_tokens=entry.num_tokens + len(drafts), drafts=drafts)
        self.num_tokens += len(drafts)


Outcome: TypeAlias = tuple[Sequence, ChoiceOutput | Exception]
"""The outcome of a step for a sequence: new output, with its end if it ended, or a fault."""
