"""Which draft tokens are accepted: those that are the very token that is chosen at their place.

So the tokens of a sequence are those that it would have got one by one. Where logits are broken, the tokens before
are kept, and the next step, which then has no other row for this sequence, tells the fault.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from itertools import islice

from engine_svc.output import Sampled

Result = Sampled | Exception


def verify(rows: SequenceOf[Result], drafts: SequenceOf[tuple[int, ...]]) -> list[Result]:
    """One result for each sequence, whose rows lie one after the other: one more than it has draft tokens.

    Each row holds the token that is chosen if all draft tokens before it are accepted.
    """
    remaining = iter(rows)
    return [_accepted(list(islice(remaining, len(of_one) + 1)), of_one) for of_one in drafts]


def _accepted(rows: list[Result], drafts: tuple[int, ...]) -> Result:
    first, *others = rows
    if isinstance(first, Exception):
        return first
    kept = [first]
    for draft, row in zip(drafts, others, strict=True):
        if kept[-1].token_ids != (draft,) or isinstance(row, Exception):
            break
        kept.append(row)
    token_ids = tuple(token for row in kept for token in row.token_ids)
    return replace(kept[-1], token_ids=token_ids, logprobs=tuple(one for row in kept for one in row.logprobs))
