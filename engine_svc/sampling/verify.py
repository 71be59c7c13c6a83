"""Acceptance of draft tokens: a draft token is accepted if it equals the token sampled at its position.

So a sequence gets the same tokens as without drafts. On invalid logits the tokens before them are kept, and the next
step, where that row is the first of this sequence, reports the fault.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from itertools import islice

from engine_svc.output import Sampled

Result = Sampled | Exception


def verify(rows: SequenceOf[Result], drafts: SequenceOf[tuple[int, ...]]) -> list[Result]:
    """One result for each sequence. Its rows are consecutive, one more than it has draft tokens.

    Each row has the token sampled if all draft tokens before it are accepted.
    """
    remaining = iter(rows)
    return [_accepted(list(islice(remaining, len(draft) + 1)), draft) for draft in drafts]


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
