from __future__ import annotations

import pytest

from engine_svc.output import Sampled, TokenLogprobs
from engine_svc.sampling.verify import Result, verify

BROKEN = FloatingPointError("no")


def rows(*token_ids: int | None) -> list[Result]:
    """The sampled token of each row; None: invalid logits."""
    return [BROKEN if token_id is None else Sampled((token_id,)) for token_id in token_ids]


@pytest.mark.parametrize(
    ("chosen", "drafts", "expected"),
    [
        ([5], (), Sampled((5,))),
        ([5, 6], (5,), Sampled((5, 6))),
        ([5, 6], (4,), Sampled((5,))),
        ([5, 6, 7], (5, 6), Sampled((5, 6, 7))),
        ([5, 6, 7], (5, 4), Sampled((5, 6))),
        ([5, 6, 7], (4, 6), Sampled((5,))),
        ([None], (), BROKEN),
        ([None, 6], (5,), BROKEN),
        ([5, None, 7], (5, 6), Sampled((5,))),
        ([5, 6, None], (5, 6), Sampled((5, 6))),
        ([5, None, None], (4, 6), Sampled((5,))),
    ],
    ids=str,
)
def test_drafts_are_accepted_up_to_the_first_mismatch(
    chosen: list[int | None], drafts: tuple[int, ...], expected: Result
) -> None:
    assert verify(rows(*chosen), [drafts]) == [expected]


def test_every_sequence_gets_the_result_of_its_own_rows() -> None:
    chosen = rows(1, 2, 3, 4, 5, 6, None, None)

    results = verify(chosen, [(), (2, 9), (), (6,), ()])

    assert results == [Sampled((1,)), Sampled((2, 3)), Sampled((5,)), Sampled((6,)), BROKEN]


def test_each_token_keeps_its_log_probability() -> None:
    logprobs = [TokenLogprobs(-0.5), TokenLogprobs(-1.5), TokenLogprobs(-2.5)]
    chosen: list[Result] = [Sampled((token,), (one,)) for token, one in zip((5, 6, 7), logprobs, strict=True)]

    assert verify(chosen, [(5, 8)]) == [Sampled((5, 6), tuple(logprobs[:2]))]


def test_other_fields_of_the_last_row_are_kept() -> None:
    over = Sampled((), completed=True)

    assert verify([*rows(5, 6), over], [(5,), ()]) == [Sampled((5, 6)), over]


def test_no_rows_no_results() -> None:
    assert verify([], []) == []
