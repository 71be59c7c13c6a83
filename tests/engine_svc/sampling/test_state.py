from __future__ import annotations

from tests.engine_svc.sampling.given import state


def counts(one: object) -> dict[int, float]:
    ids, found = one.occurrences()  # type: ignore[attr-defined]
    return dict(zip(ids.tolist(), found.tolist(), strict=True))


def test_rows_after_drafts_count_them_as_output() -> None:
    now = state([7, 7], prompt=[1, 2], repetition_penalty=1.5)

    ahead, further = now.after((7, 8)), now.after((7, 8, 1))

    assert counts(ahead) == {1: 0, 2: 0, 7: 3, 8: 1}
    assert counts(further) == {1: 1, 2: 0, 7: 3, 8: 1}
    assert counts(now) == {1: 0, 2: 0, 7: 2}
    assert (now.position, ahead.position, further.position) == (2, 4, 5)


def test_accepted_drafts_are_not_counted_twice() -> None:
    now = state([7], prompt=[1], frequency_penalty=1.0)
    assert counts(now.after((9,))) == {1: 0, 7: 1, 9: 1}

    now.sequence.token_ids += [9, 5]

    assert counts(now) == {1: 0, 7: 1, 9: 1, 5: 1}
    assert counts(now.after((5,))) == {1: 0, 7: 1, 9: 1, 5: 2}


def test_min_tokens_is_reached_within_drafts() -> None:
    now = state([7], temperature=0.0, min_tokens=3)

    assert [now.after((7,) * count).must_continue for count in range(4)] == [True, True, False, False]
    assert [now.after((7,) * count).is_greedy for count in range(4)] == [False, False, True, True]


def test_without_drafts_the_state_is_its_own() -> None:
    now = state([7])

    assert now.after(()) is now
