from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.deltas import Content, Marker, Reasoning, ReasoningEnd
from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.reasoning.think import CLOSING, OPENING, Think
from detokenizer_svc.stage import ParserContext, ReasoningState
from detokenizer_svc.tags import WHITE_SPACE
from tests.detokenizer_svc.given import SIZES, cut, cut_by, run, run_text, vocabulary_of

UNDECIDED, OPEN, CLOSED = ReasoningState.UNDECIDED, ReasoningState.OPEN, ReasoningState.CLOSED
fragments = st.lists(
    st.sampled_from([OPENING, CLOSING, "<thi", "</think", "<", ">", "\n", " ", "a", "京"]), max_size=12
).map("".join)


def spec(state: ReasoningState) -> FormatSpec:
    return FormatSpec(reasoning_parser="think", reasoning_state=state)


def parsed(text: str, state: ReasoningState) -> tuple[str, str]:
    """Reasoning and content of a whole output."""
    start = re.match(rf"[{WHITE_SPACE}]*{OPENING}", text)
    if state is CLOSED or (state is UNDECIDED and not start):
        return "", text
    if start:
        text = text[start.end() :]
    text = text.lstrip(WHITE_SPACE)
    reasoning, closing, answer = text.partition(CLOSING)
    return (reasoning.rstrip(WHITE_SPACE), answer.lstrip(WHITE_SPACE)) if closing else (reasoning, "")


@given(fragments, st.sampled_from(ReasoningState), st.lists(st.integers(0, 4), max_size=30))
def test_tags_anywhere_in_any_pieces(text: str, state: ReasoningState, sizes: list[int]) -> None:
    output = run(spec(state), cut_by(text.encode(), sizes))
    assert (output.reasoning, output.content) == parsed(text, state)


@given(fragments, st.sampled_from(ReasoningState))
def test_reasoning_tokens_are_the_bytes_between_the_tags(text: str, state: ReasoningState) -> None:
    expected = 0
    start = re.match(rf"[{WHITE_SPACE}]*{OPENING}", text)
    if state is OPEN:
        expected = len(text.partition(CLOSING)[0].encode())
    elif state is UNDECIDED and start:
        expected = len(text[start.end() :].partition(CLOSING)[0].encode())
    for size in (1, 10**9):
        ending = run_text(spec(state), text, size).ending
        assert ending is not None
        assert ending.reasoning_tokens == expected


TOKENS = vocabulary_of(
    b"<think>", b"</think>", b"\n", b" a", b" b</", b"think> c", b"\xf0\x9f", b"\x94\xa5", b"<th", b"x"
)
COUNTS = [
    (UNDECIDED, [0, 2, 3, 3, 1, 2, 3], 3),
    (OPEN, [3, 3, 1, 3], 2),
    (OPEN, [3, 4, 5, 3], 2),
    (OPEN, [3, 6, 7, 1, 3], 3),
    (OPEN, [6, 7, 3, 8], 4),
    (CLOSED, [3, 3], 0),
    (UNDECIDED, [3, 0, 3], 0),
    (UNDECIDED, [0, 1, 3], 0),
    (OPEN, [], 0),
]


@pytest.mark.parametrize(("state", "token_ids", "expected"), COUNTS)
@pytest.mark.parametrize("size", SIZES)
def test_reasoning_tokens(state: ReasoningState, token_ids: list[int], expected: int, size: int) -> None:
    ending = run(spec(state), cut(token_ids, size), vocabulary=TOKENS, reason="length").ending
    assert ending is not None
    assert ending.reasoning_tokens == expected


def test_the_stop_token_is_not_a_reasoning_token() -> None:
    for size in SIZES:
        ending = run(spec(OPEN), cut([3, 3, 3], size), vocabulary=TOKENS, by_token=True).ending
        assert ending is not None
        assert (ending.reasoning_tokens, ending.completion_tokens) == (2, 3)


def test_reasoning_is_emitted_at_once() -> None:
    stage = Think(ParserContext(reasoning_state=OPEN))
    assert list(stage.feed(Content("\nso </th"))) == [Reasoning("so")]
    assert list(stage.feed(Content("at"))) == [Reasoning(" </that")]
    assert list(stage.feed(Content("</think>\n"))) == [ReasoningEnd()]
    assert list(stage.feed(Content("\nyes \n"))) == [Content("yes \n")]


def test_tags_that_are_special_tokens() -> None:
    vocabulary = vocabulary_of(b"a", b"\n", special=(OPENING, CLOSING))
    for size in SIZES:
        output = run(spec(UNDECIDED), cut([2, 1, 0, 1, 3, 1, 0], size), vocabulary=vocabulary)
        assert (output.reasoning, output.content) == ("a", "a")
        output = run(spec(CLOSED), cut([0, 3, 0], size), vocabulary=vocabulary)
        assert (output.reasoning, output.content) == ("", "aa")


@pytest.mark.parametrize(
    ("state", "text", "before"),
    [(UNDECIDED, "\n<th", [Content("\n<th")]), (CLOSED, "x", []), (UNDECIDED, "", [])],
)
def test_a_marker_of_another_stage_ends_the_search_for_an_opening_tag(
    state: ReasoningState, text: str, before: list[Content]
) -> None:
    stage = Think(ParserContext(reasoning_state=state))
    list(stage.feed(Content(text)))
    assert list(stage.feed(Marker("[CALL]"))) == [*before, Marker("[CALL]")]
    assert list(stage.feed(Content("<think>"))) == [Content("<think>")]


def test_a_marker_of_another_stage_after_the_closing_tag() -> None:
    stage = Think(ParserContext(reasoning_state=UNDECIDED))
    assert list(stage.feed(Content("\n<think>a</think>\n"))) == [Reasoning("a"), ReasoningEnd()]
    assert list(stage.feed(Marker("[CALL]"))) == [Marker("[CALL]")]
    assert list(stage.feed(Content("\n"))) == [Content("\n")]


def test_a_marker_of_another_stage_inside_reasoning_is_reasoning() -> None:
    stage = Think(ParserContext(reasoning_state=OPEN))
    assert list(stage.feed(Content("a </"))) == [Reasoning("a")]
    assert list(stage.feed(Marker("[CALL]"))) == [Reasoning(" </[CALL]")]


def test_other_items_pass() -> None:
    stage = Think(ParserContext(reasoning_state=UNDECIDED))
    assert list(stage.feed(Reasoning("x"))) == [Reasoning("x")]
