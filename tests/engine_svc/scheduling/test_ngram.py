from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.scheduling import ngram
from engine_svc.scheduling.ngram import NgramDrafter

texts = st.lists(st.integers(0, 3), max_size=40)


def after(prompt: list[int], output: list[int]) -> NgramDrafter:
    """A drafter updated with the output after the prompt."""
    token_ids = list(prompt)
    drafter = NgramDrafter(token_ids)
    token_ids += output
    drafter.update()
    return drafter


def expected_draft(token_ids: list[int], first: int = 0) -> int | None:
    """The tokens after the last earlier occurrence of the longest n-gram at the end, from ``first`` on."""
    for size in (3, 2, 1):
        for position in range(len(token_ids) - 1, first + size - 1, -1):
            if size < len(token_ids) and token_ids[position - size : position] == token_ids[-size:]:
                return token_ids[position]
    return None


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([], ()),
        ([5], ()),
        ([5, 5], (5, 5, 5, 5)),
        ([5, 6, 5], (6, 5, 6, 5)),
        ([1, 2, 3, 1, 2], (3, 1, 2, 3)),
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], (4, 9, 1, 2)),
        ([9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2], (3, 8, 1, 2)),
        ([1, 2, 3, 7, 2, 4, 1, 2], (3, 7, 2, 4)),
        ([1, 2, 3, 4], ()),
        ([7, 7, 7], (7, 7, 7, 7)),
        ([1, 7, 1, 7, 1, 7], (1, 7, 1, 7)),
    ],
    ids=str,
)
def test_drafts_are_the_tokens_after_the_last_occurrence(token_ids: list[int], expected: tuple[int, ...]) -> None:
    assert NgramDrafter(token_ids).propose(4) == expected
    assert after([], token_ids).propose(4) == expected


def test_no_match_no_chance() -> None:
    assert NgramDrafter([1, 2, 3, 4]).chance == 0.0


@given(texts)
def test_the_index_finds_what_a_search_finds(token_ids: list[int]) -> None:
    expected = expected_draft(token_ids)

    found = NgramDrafter(token_ids).propose(1)

    assert found == (() if expected is None else (expected,))


@given(texts, texts)
def test_only_the_end_of_a_long_prompt_is_indexed(prompt: list[int], output: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram, "_MAX_INDEXED", 8)
        found = after(prompt, output).propose(1)

    expected = expected_draft(prompt + output, first=max(0, len(prompt) - 8))
    assert found == (() if expected is None else (expected,))


@given(texts, texts, st.integers(1, 9))
def test_updates_may_be_batched(prompt: list[int], output: list[int], count: int) -> None:
    assert after(prompt, output).propose(count) == NgramDrafter(prompt + output).propose(count)


@given(texts, st.integers(1, 9))
def test_a_draft_may_copy_itself(token_ids: list[int], count: int) -> None:
    drafts = NgramDrafter(token_ids).propose(count)

    assert len(drafts) in (0, count)
    if drafts:
        assert NgramDrafter(token_ids).propose(count - 1) == drafts[:-1]


@given(texts, texts)
def test_a_chance_is_a_probability(prompt: list[int], output: list[int]) -> None:
    assert 0.0 <= after(prompt, output).chance <= 1.0


def test_accepted_drafts_raise_the_acceptance_rate() -> None:
    chances = [after([1, 2, 3], [1, 2, 3] * count).chance for count in range(2, 12)]

    assert chances == sorted(set(chances))
    assert chances[-1] > 0.95


def test_rejected_drafts_lower_the_acceptance_rate_and_it_recovers() -> None:
    misses = [token for number in range(20) for token in (7, 100 + number)]

    wrong, right = after([], [*misses, 7]), after([], [*misses, *[7, 8] * 20, 7])

    assert 0.0 < wrong.chance < 0.04
    assert right.chance > 0.8


def test_each_ngram_length_has_its_own_acceptance_rate() -> None:
    """A repeated long phrase, and a token that is always followed by a new one."""
    output = [token for number in range(20) for token in (*range(20, 40), 1, 100 + number, 1, 200 + number)]

    in_phrase, after_one = after([], [*output, *range(20, 36)]), after([], [*output, 1])

    assert in_phrase.propose(2) == (36, 37)
    assert after_one.chance < 0.5 < 0.9 < in_phrase.chance


def test_only_output_tokens_change_the_acceptance_rate() -> None:
    assert NgramDrafter([1, 2, 3] * 50).chance == NgramDrafter([1, 2, 3] * 2).chance
