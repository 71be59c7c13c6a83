"""Speculation: guessed tokens are computed along with the ones that are due, and those that prove right save steps.

A step with few tokens spends its time on reading the weights, so that a few more tokens cost little: the time of ``r``
tokens is about ``r + FREE_TOKENS`` times what one takes to compute. Of these tokens, ``u`` are of use: those that are
due, and each draft by its chance of being right. So one draft more pays while its chance is at least
``u / (r + FREE_TOKENS)``, which is what the step yields for its time without it: the more a step does anyway, the more.

What is sampled does not depend on drafts, only in which step it is (``sampling/verify.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from engine_svc.execution.runner import ScheduledSequence
from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.ngram import NgramDrafter
from engine_svc.scheduling.step import Plan

FREE_TOKENS: Final = 6
"""So many tokens take about as long to compute as the weights take to be read, if these have 4 bits. Wider ones take
longer, so that for them too little is guessed rather than too much."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """At most ``num_tokens`` drafts of a sequence in a step, none beyond ``max_step_tokens`` tokens in the step."""

    num_tokens: int
    max_step_tokens: int

    def within(self, max_num_batched_tokens: int) -> Speculation:
        """The same where a step holds so many tokens at most, whatever they are."""
        return replace(self, max_step_tokens=min(self.max_step_tokens, max_num_batched_tokens))

    def extend(self, plan: Plan, blocks: BlockManager) -> None:
        """Add drafts to a plan that is complete without them. They take blocks that are free, and nobody's place."""
        if plan.num_tokens >= self.max_step_tokens:
            return
        for row, count in self._choose(plan).items():
            entry = plan.batch[row]
            drafts = _drafter_of(entry).propose(count)
            if blocks.grow(entry.sequence, entry.start + entry.num_tokens + len(drafts)):
                plan.add_drafts(row, drafts)

    def _choose(self, plan: Plan) -> Counter[int]:
        """How many drafts each entry of the batch gets: the likeliest first, as long as they pay."""
        chosen: Counter[int] = Counter()
        useful = float(plan.num_tokens)
        for num_tokens, (unlikeliness, row) in enumerate(sorted(self._claims(plan)), start=plan.num_tokens):
            if num_tokens >= self.max_step_tokens or -unlikeliness < useful / (num_tokens + FREE_TOKENS):
                break
            chosen[row] += 1
            useful -= unlikeliness
        return chosen

    def _claims(self, plan: Plan) -> Iterator[tuple[float, int]]:
        """For each draft that could pay: its chance of being right, negative, and whose it is."""
        least = plan.num_tokens / (plan.num_tokens + FREE_TOKENS)
        for row, entry in enumerate(plan.batch):
            if not _may_speculate(entry):
                continue
            sequence = entry.sequence
            # The last token of a choice is sampled and never computed, so it is never a draft.
            most = sequence.request.sampling_params.max_tokens - sequence.num_output_tokens - 1
            chance = _drafter_of(entry).chance
            chances = (chance**count for count in range(1, min(self.num_tokens, most) + 1))
            yield from ((-likelihood, row) for likelihood in takewhile(lambda found: found >= least, chances))


def _may_speculate(entry: ScheduledSequence) -> bool:
    """Whether an entry may have drafts: one that only goes on by a token, and chooses it among all tokens."""
    params = entry.sequence.request.sampling_params
    return entry.samples and entry.num_tokens == 1 and params.constraint is None


def _drafter_of(entry: ScheduledSequence) -> NgramDrafter:
    """The drafter of a sequence, up to date."""
    sequence = entry.sequence
    if sequence.drafter is None:
        sequence.drafter = NgramDrafter(sequence.token_ids)
    sequence.drafter.update()
    return sequence.drafter
