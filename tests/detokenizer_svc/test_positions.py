from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.positions import Span, TokenPositions


def positions_of(text: str, sizes: list[int]) -> tuple[TokenPositions, list[set[int]]]:
    """Positions of tokens of the given sizes in bytes, and the characters that each token overlaps."""
    owners = [number for number, character in enumerate(text) for _ in character.encode()]
    positions, parts, start, whole = TokenPositions(), [], 0, 0
    for size in sizes:
        end = min(start + size, len(owners))
        parts.append(set(owners[start:end]))
        now = len(text.encode()[:end].decode(errors="ignore"))
        inside = 0 < end < len(owners) and owners[end - 1] == owners[end]
        positions.add(now - whole, unfinished=inside)
        start, whole = end, now
    return positions, parts


texts = st.text(alphabet="aé京🔥", max_size=12)
token_sizes = st.lists(st.integers(1, 5), max_size=30)


@given(texts, token_sizes, st.data())
def test_tokens_within_spans_are_those_that_overlap_them(text: str, sizes: list[int], data: st.DataObject) -> None:
    positions, parts = positions_of(text, sizes)
    edges = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    spans = [Span(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=False) if begin < end]
    inside = {at for span in spans for at in range(span.begin, span.end or 0)}
    assert positions.tokens_within(spans, len(text)) == sum(1 for part in parts if part & inside)


@given(texts.filter(bool), token_sizes)
def test_tokens_until_is_the_number_of_the_token_that_completes_a_character(text: str, sizes: list[int]) -> None:
    positions, parts = positions_of(text, sizes)
    for length in range(1, len(text) + 1):
        last = max((n for n, part in enumerate(parts, 1) if length - 1 in part), default=None)
        if last is not None and (positions.characters_after(last) or 0) >= length:
            assert positions.tokens_until(length) == last


def test_a_span_without_an_end_ends_at_the_given_length() -> None:
    positions, _ = positions_of("abcdef", [1] * 6)
    assert positions.tokens_within([Span(2)], 6) == 4
    assert positions.tokens_within([Span(2)], 5) == 3
    assert positions.tokens_within([Span(6)], 6) == 0


def test_a_token_in_two_spans_counts_once() -> None:
    positions, _ = positions_of("abcd", [4])
    assert positions.tokens_within([Span(0, 1), Span(2, 3)], 4) == 1


def test_a_token_without_text_counts_inside_a_span_but_not_after_it() -> None:
    positions = TokenPositions()
    for size in (1, 0, 1, 0):
        positions.add(size)
    assert positions.tokens_within([Span(0, 2)], 2) == 3
    assert len(positions) == 4


@pytest.mark.parametrize("length", [1, 100])
def test_too_many_characters_take_all_tokens(length: int) -> None:
    positions = TokenPositions()
    positions.add(0, unfinished=True)
    assert positions.tokens_until(length) == 1
