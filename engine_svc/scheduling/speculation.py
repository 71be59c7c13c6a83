"""N-gram speculative decoding: a step computes draft tokens after the tokens that are due; accepted ones save steps.

A step with few tokens is bound by reading the weights, so a few more tokens cost little: ``r`` tokens take about
``r + FREE_TOKENS`` times the compute time of one. The expected yield ``u`` of a step is its due tokens plus each draft
token weighted by its probability of acceptance. One more draft token pays off while its probability is at least
``u / (r + FREE_TOKENS)``, the yield per time without it: the more tokens a step has anyway, the higher this threshold.

Speculation is lossless: drafts change the step in which a token is sampled, not the token (``sampling/verify.py``).
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
"""Tokens that take as long to compute as 4-bit weights take to read. Wider weights take longer to read, so with them
there are too few draft tokens rather than too many."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """At most ``num_tokens`` draft tokens per sequence and step, none beyond ``max_step_tokens`` tokens in the step."""

    num_tokens: int
    max_step_tokens: int

    def within(self, max_num_batched_tokens: int) -> Speculation:
        """The same under a token budget per step."""
        return replace(self, max_step_tokens=min(self.max_step_tokens, max_num_batched_tokens))

    def extend(self, plan: Plan, blocks: BlockManager, max_drafts: int | None = None) -> None:
        """Add draft tokens to a plan that is complete without them, ``max_drafts`` at most.

        They take free blocks only and preempt nothing.
        """
        max_tokens = self.max_step_tokens
        if max_drafts is not None:
            max_tokens = min(max_tokens, plan.num_tokens + max_drafts)
        if plan.num_tokens >= max_tokens:
            return
        for row, count in self._choose(plan, max_tokens).items():
            entry = plan.batch[row]
            drafts = _drafter_of(entry).propose(count)
            if blocks.grow(entry.sequence, entry.start + entry.num_tokens + len(drafts)):
                plan.add_drafts(row, drafts)

    def _choose(self, plan: Plan, max_tokens: int) -> Counter[int]:
        """Number of draft tokens for each entry of the batch: the most probable first, as long as they pay off."""
        chosen: Counter[int] = Counter()
        expected = float(plan.num_tokens)
        for num_tokens, (negated, row) in enumerate(sorted(self._candidates(plan)), start=plan.num_tokens):
            if num_tokens >= max_tokens or -negated < expected / (num_tokens + FREE_TOKENS):
                break
            chosen[row] += 1
            expected -= negated
        return chosen

    def _candidates(self, plan: Plan) -> Iterator[tuple[float, int]]:
        """For each draft token that could pay off: its negated probability of acceptance, and its row in the batch."""
        threshold = plan.num_tokens / (plan.num_tokens + FREE_TOKENS)
        for row, entry in enumerate(plan.batch):
            if not _may_speculate(entry):
                continue
            sequence = entry.sequence
            # The last token of a choice is sampled and never computed, so it is never a draft.
            num_useful = sequence.request.sampling_params.max_tokens - sequence.num_output_tokens - 1
            chance = _drafter_of(entry).chance
            chances = (chance**count for count in range(1, min(self.num_tokens, num_useful) + 1))
            yield from ((-probability, row) for probability in takewhile(lambda chance: chance >= threshold, chances))


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
