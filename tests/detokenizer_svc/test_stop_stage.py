"""Stop strings and reasoning, stop strings and special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.deltas import Content, Item, Marker, Reasoning, ReasoningEnd
from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.reasoning.think import CLOSING, OPENING, Think
from detokenizer_svc.stage import ParserContext, ReasoningState
from detokenizer_svc.stop_stage import StopStage
from tests.detokenizer_svc.given import SIZES, cut, cut_by, run, run_text, vocabulary_of
from tests.detokenizer_svc.test_stop import naive

UNDECIDED, OPEN, CLOSED = ReasoningState.UNDECIDED, ReasoningState.OPEN, ReasoningState.CLOSED
fragments = st.lists(
    st.sampled_from([OPENING, CLOSING, "<thi", "</think", "<", ">", "\n", " ", "a", "b", "京"]), max_size=14
).map("".join)
stops = st.lists(
    st.sampled_from(["a", "ab", "b\n", ">", "k>a", CLOSING, f"a{CLOSING}b", OPENING, "\n", "\na", "<thi", "京"]),
    min_size=1,
    max_size=3,
)


@given(fragments, stops, st.sampled_from(ReasoningState), st.lists(st.integers(0, 4), max_size=30))
def test_stop_strings_apply_to_content_only(
    text: str, stop: list[str], state: ReasoningState, sizes: list[int]
) -> None:
    spec = FormatSpec(reasoning_parser="think", reasoning_state=state)
    free = run_text(spec, text)
    output = run(replace(spec, stop=tuple(stop)), cut_by(text.encode(), sizes))
    expected, matched = naive(free.content, stop)
    assert (output.reasoning, output.content) == (free.reasoning, expected)
    assert output.ending is not None
    assert output.ending.matched_stop == matched
    behind = len(free.content) - len(expected) - len(matched) if matched else 0
    assert output.num_tokens == len(text[: len(text) - behind].encode())
    assert free.ending is not None
    assert output.ending.reasoning_tokens == free.ending.reasoning_tokens


@pytest.mark.parametrize("size", SIZES)
def test_min_tokens_count_from_the_start_of_the_output(size: int) -> None:
    spec = FormatSpec(reasoning_parser="think", reasoning_state=OPEN, stop=("x",))
    text = f"ab{CLOSING}\nxyxy"
    for min_tokens, content in ((0, ""), (11, ""), (12, "xy"), (13, "xy"), (14, "xyxy")):
        assert run_text(replace(spec, min_tokens=min_tokens), text, size).content == content


def test_held_items_are_released_in_order() -> None:
    stage = StopStage(Think(ParserContext(reasoning_state=UNDECIDED)), ["abc"], [], lambda: 0)

    def feed(*items: Item) -> list[Item]:
        return [given for item in items for given in stage.feed(item)]

    assert feed(Content("\n<thi")) == []
    assert feed(Content("nk>ab")) == [Reasoning("ab")]
    assert feed(Content("</think>")) == [ReasoningEnd()]
    assert feed(Content("c\nxab")) == [Content("c\nx")]
    assert feed(Marker("[CALL]")) == [Content("ab"), Marker("[CALL]")]
    assert feed(Content("c ab"), Content("c d"), Content("e")) == [Content("c ")]
    assert (stage.matched, stage.num_characters) == ("abc", len("\n<think>ab</think>c\nxab[CALL]c abc"))
    assert list(stage.finish("stop")) == []


EOT, HEADER = "<|eot|>", "<|header|>"
TOKENS = vocabulary_of(b"a", b"b", EOT.encode(), b"|>", special=(EOT, HEADER, CLOSING, "</tool_call>", "<tool_call>"))
A, B, SPELLED, TAIL = range(4)
END, HEAD, THINK_END, CALL_END, CALL = range(4, 9)
SPECIAL: list[tuple[Sequence[int], list[str], str, str | None, int]] = [
    ([A, END, B], [EOT], "a", EOT, 2),
    ([A, END, B], ["x", EOT], "a", EOT, 2),
    ([END], [EOT], "", EOT, 1),
    ([A, SPELLED, B], [EOT], "a", EOT, 2),
    ([A, END, B, END], [f"b{EOT}"], "a", f"b{EOT}", 4),
    ([A, A, B, END, B], [f"ab{EOT}b"], "a", f"ab{EOT}b", 5),
    ([A, END, HEAD, B], [f"{EOT}{HEADER}"], "a", f"{EOT}{HEADER}", 3),
    ([A, END, END, HEAD, B], [f"{EOT}{HEADER}"], "a", f"{EOT}{HEADER}", 4),
    ([A, END, A, B], [f"{EOT}b"], "aab", None, 4),
    ([A, END, B], [f"{EOT}a", "b"], "a", "b", 3),
    ([A, END], [f"{EOT}a"], "a", None, 2),
    ([A, END, A], ["|>a", f"{EOT}x"], "aa", None, 3),
    ([A, TAIL, A, END], ["|>a", f"{EOT}x"], "a", "|>a", 3),
    ([A, HEAD, B], ["ab"], "", "ab", 3),
    ([A, HEAD, B], ["ab", HEADER], "a", HEADER, 2),
    ([A, THINK_END, B], [CLOSING], "a", CLOSING, 2),
    ([A, CALL_END, B], ["</tool_call>"], "a", "</tool_call>", 2),
    ([A, CALL, B], ["<tool_call>"], "a", "<tool_call>", 2),
    ([A, CALL, B], ["<tool_call>a", "a<"], "a<tool_call>b", None, 3),
]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("token_ids", "stop", "content", "matched", "num_tokens"), SPECIAL)
def test_special_tokens_in_stop_strings(
    token_ids: list[int], stop: list[str], content: str, matched: str | None, num_tokens: int, size: int, skip: bool
) -> None:
    spec = FormatSpec(stop=tuple(stop), tool_parser="hermes", skip_special_tokens=skip)
    output = run(spec, cut(token_ids, size), vocabulary=TOKENS, reason="length")
    assert output.ending is not None
    if skip:
        assert (output.content, output.ending.matched_stop, output.num_tokens) == (content, matched, num_tokens)
    elif matched and EOT in matched:
        assert (output.content.replace(EOT, ""), output.ending.matched_stop) == (content, matched)


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 3])
def test_special_tokens_and_min_tokens(min_tokens: int) -> None:
    for size in SIZES:
        spec = FormatSpec(stop=(EOT,), min_tokens=min_tokens)
        output = run(spec, cut([A, END, B, END], size), vocabulary=TOKENS)
        assert output.content == ("a" if min_tokens < 2 else "ab")
        assert output.num_tokens == (2 if min_tokens < 2 else 4)


@pytest.mark.parametrize("state", [UNDECIDED, OPEN, CLOSED])
@pytest.mark.parametrize("size", SIZES)
def test_special_tokens_inside_reasoning_do_not_match(state: ReasoningState, size: int) -> None:
    spec = FormatSpec(stop=(EOT,), reasoning_parser="think", reasoning_state=state)
    output = run(spec, cut([A, END, B, THINK_END, A, END, B], size), vocabulary=TOKENS)
    assert output.ending is not None
    if state is OPEN:
        assert (output.reasoning, output.content, output.num_tokens) == ("ab", "a", 6)
        assert output.ending.reasoning_tokens == 3
    else:
        assert (output.reasoning, output.content, output.num_tokens) == ("", "a", 2)


@pytest.mark.parametrize("state", [UNDECIDED, OPEN])
def test_a_special_token_where_content_or_reasoning_may_start(state: ReasoningState) -> None:
    vocabulary = vocabulary_of(b"\n", b"<think>", b"a</think>\n", special=(EOT,))
    spec = FormatSpec(stop=(EOT,), reasoning_parser="think", reasoning_state=state)
    for size in SIZES:
        output = run(spec, cut([0, 3, 1], size), vocabulary=vocabulary)
        assert (output.reasoning, output.content) == ("", "\n" if state is UNDECIDED else "")
        output = run(spec, cut([0, 1, 2, 3, 2], size), vocabulary=vocabulary)
        assert (output.reasoning, output.content, output.num_tokens) == ("a", "", 4)
