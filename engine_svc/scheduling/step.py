"""What passes between the scheduler and the engine for one step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from engine_svc.execution.runner import ScheduledSequence
from engine_svc.request import ChoiceOutput
from engine_svc.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What one step may hold. ``max_num_batched_tokens`` is at least ``max_num_seqs``: nobody running is left out."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_chunk: int


@dataclass(slots=True)
class Plan:
    """One step: what to compute, who starts with it, and who lost its place for it."""

    batch: list[ScheduledSequence] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    num_tokens: int = 0

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        """Compute this many tokens of a sequence, from where it stands."""
        self.batch.append(ScheduledSequence(sequence, sequence.num_computed_tokens, num_tokens))
        self.num_tokens += num_tokens

    def add_drafts(self, row: int, drafts: tuple[int, ...]) -> None:
        """Compute these guesses too, after the tokens of an entry that samples."""
        entry = self.batch[row]
        self.batch[row] = replace(entry, num_tokens=entry.num_tokens + len(drafts), drafts=drafts)
        self.num_tokens += len(drafts)


Outcome: TypeAlias = tuple[Sequence, ChoiceOutput | Exception]
"""What a step did to a sequence: new output, perhaps its end, or a fault and nothing else."""
