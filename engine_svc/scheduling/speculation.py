"""N-gram speculative decoding: draft tokens are computed in the same step as the tokens due; accepted ones save steps.

A step with few tokens is bound by reading the weights, so a few more tokens cost little: ``r`` tokens take about
``r + FREE_TOKENS`` times the compute time of one. The expected yield ``u`` of a step is its due tokens plus each draft
token by its probability of acceptance. One more draft token pays while its probability is at least
``u / (r + FREE_TOKENS)``, the yield per time without it: the more tokens a step has anyway, the higher the bar.

Speculation is lossless: drafts change in which step a token is sampled, not which (``sampling/verify.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.ngram import NgramDrafter
from engine_svc.scheduling.step import Plan, ScheduledSequence

FREE_TOKENS: Final = 6
"""So many tokens take about as long to compute as 4-bit weights take to be read. Wider weights take longer to read, so
they get too few draft tokens rather than too many."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """At most ``num_tokens`` draft tokens per sequence and step, none beyond ``max_step_tokens`` tokens in the step."""

    num_tokens: int
    max_step_tokens: int

    def within(self, max_num_batched_tokens: int) -> Speculation:
        """The same under a token budget per step."""
        return replace(self, max_step_tokens=min(self.max_step_tokens, max_num_batched_tokens))

    def extend(self, plan: Plan, blocks: BlockManager) -> None:
        """Add draft tokens to a plan that is complete without them. They take free blocks only and preempt nothing."""
        if plan.num_tokens >= self.max_step_tokens:
            return
        for row, count in self._choose(plan).items():
            entry = plan.batch[row]
            drafts = _drafter_of(entry).propose(count)
            if blocks.grow(entry.sequence, entry.start + entry.num_tokens + len(drafts)):
                plan.add_drafts(row, drafts)

    def _choose(self, plan: Plan) -> Counter[int]:
        """Number of draft tokens for each entry of the batch: the most probable first, as long as they pay."""
        chosen: Counter[int] = Counter()
        useful = float(plan.num_tokens)
        for num_tokens, (negated, row) in enumerate(sorted(self._claims(plan)), start=plan.num_tokens):
            if num_tokens >= self.max_step_tokens or -negated < useful / (num_tokens + FREE_TOKENS):
                break
            chosen[row] += 1
            useful -= negated
        return chosen

    def _claims(self, plan: Plan) -> Iterator[tuple[float, int]]:
        """For each draft token that could pay: its probability of acceptance, negated, and its row in the batch."""
        least = plan.num_tokens / (plan.num_tokens + FREE_TOKENS)
        for row, entry in enumerate(plan.batch):
            if not _may_speculate(entry):
                continue
            sequence = entry.sequence
            # The last token of a choice is sampled and never computed, so it is never a draft.
            most = sequence.request.sampling_params.max_tokens - sequence.num_output_tokens - 1
            chance = _drafter_of(entry).chance
            chances = (chance**count for count in range(1, min(self.num_tokens, most) + 1))
            yield from ((-probability, row) for probability in takewhile(lambda found: found >= least, chances))


def _may_speculate(entry: ScheduledSequence) -> bool:
    """Whether an entry may have draft tokens: a decode step of one token, without a constraint."""
    params = entry.sequence.request.sampling_params
    return entry.samples and entry.num_tokens == 1 and params.constraint is None


def _drafter_of(entry: ScheduledSequence) -> NgramDrafter:
    """The drafter of a sequence, up to date."""
    sequence = entry.sequence
    if sequence.drafter is None:
        sequence.drafter = NgramDrafter(sequence.token_ids)
    sequence.drafter.update()
    return sequence.drafter
