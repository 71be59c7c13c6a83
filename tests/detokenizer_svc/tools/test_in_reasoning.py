from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.deltas import Content, Item, Reasoning, ReasoningEnd, ToolCallPiece
from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.stage import ParserContext, ReasoningState, Tool
from detokenizer_svc.tools.hermes import Hermes
from detokenizer_svc.tools.in_reasoning import CallsInReasoning
from tests.detokenizer_svc.given import cut_by, run

CONTEXT = ParserContext(tools=(Tool("f"),))
SPEC = FormatSpec(
    reasoning_parser="think", reasoning_state=ReasoningState.OPEN, tool_parser="hermes", tools=(Tool("f"),)
)
GOOD = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
UNKNOWN = '<tool_call>{"name": "g"}</tool_call>'
parts = st.lists(st.sampled_from([GOOD, UNKNOWN, "<tool_call>", "a", " ", "\n", "</tool_call>", "<"]), max_size=8)


def stage() -> CallsInReasoning:
    return CallsInReasoning(Hermes, CONTEXT)


def feed(stage: CallsInReasoning, *items: Item) -> list[Item]:
    return [given for item in items for given in stage.feed(item)]


def test_reasoning_passes_until_a_call_is_complete() -> None:
    reader = stage()
    assert feed(reader, Reasoning("so "), Reasoning("<tool")) == [Reasoning("so")]
    assert feed(reader, Reasoning("s>")) == [Reasoning(" <tools>")]
    assert feed(reader, Reasoning(GOOD), Reasoning("more")) == []
    assert feed(reader, ReasoningEnd()) == [Reasoning(f"{GOOD}more")]
    assert list(reader.finish("stop")) == []


def test_calls_count_at_the_end_of_unclosed_reasoning() -> None:
    reader = stage()
    feed(reader, Reasoning(f"so {GOOD}"))
    name, arguments = reader.finish("length")
    assert isinstance(name, ToolCallPiece)
    assert isinstance(arguments, ToolCallPiece)
    assert (name.index, name.name, arguments.arguments) == (0, "f", '{"a": 1}')


def test_long_arguments_inside_reasoning_are_not_streamed() -> None:
    reader = stage()
    assert feed(reader, Reasoning('<tool_call>{"name": "f", "arguments": {"a": "xxx')) == []
    assert feed(reader, ReasoningEnd()) == [Reasoning('<tool_call>{"name": "f", "arguments": {"a": "xxx')]


def test_an_incomplete_call_inside_reasoning_is_reasoning_at_any_length() -> None:
    text = b'x <tool_call>{"name": "f", "arguments": {"a": "xxx'
    for reason in ("stop", "length"):
        output = run(SPEC, [text], reason=reason)
        assert (output.reasoning, output.calls) == (text.decode(), [])


def test_content_passes_unchanged() -> None:
    assert feed(stage(), Content(GOOD)) == [Content(GOOD)]


@given(parts, st.lists(st.integers(0, 9), max_size=30))
def test_closed_reasoning_keeps_its_text(parts: list[str], sizes: list[int]) -> None:
    reasoning = "".join(parts)
    output = run(SPEC, cut_by(f"x{reasoning}</think>y".encode(), sizes))
    assert output.reasoning == f"x{reasoning}".rstrip()
    assert output.content == "y"
    assert output.calls == []


@given(parts, st.lists(st.integers(0, 9), max_size=30))
def test_unclosed_reasoning_gives_its_declared_calls(parts: list[str], sizes: list[int]) -> None:
    reasoning = "".join(parts)
    output = run(SPEC, cut_by(f"x{reasoning}".encode(), sizes))
    assert output.calls == [("f", '{"a": 1}')] * reasoning.count(GOOD)
    assert output == run(SPEC, [f"x{reasoning}".encode()])
    if not output.calls:
        assert output.reasoning == f"x{reasoning}"
