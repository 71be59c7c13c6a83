from __future__ import annotations

from dataclasses import replace

import pytest

from detokenizer_svc.deltas import Content, Reasoning, ToolCallPiece
from detokenizer_svc.formatter import EngineEnd, FormatSpec, Formatter
from detokenizer_svc.stage import FinishReason, ReasoningState
from detokenizer_svc.vocabulary import UnknownToken
from svclib.errors import InvalidRequest
from tests.detokenizer_svc.given import BYTES, SIZES, WEATHER, cut, run, run_text, vocabulary_of

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
EOT = vocabulary_of(b"a", b"b", special=("<eot>",))


def ids(text: str) -> list[int]:
    return list(text.encode())


def test_without_parsers_each_token_is_emitted_at_once() -> None:
    formatter = Formatter(BYTES, FormatSpec())
    assert formatter.feed([72]).deltas == [Content("H")]
    assert formatter.feed(ids("ello <think>")).deltas == [Content("ello <think>")]
    last = formatter.feed([], EngineEnd("length"))
    assert last.deltas == []
    assert last.ending is not None
    assert last.ending.finish_reason == "length"
    assert last.ending.completion_tokens == 13


def test_no_tokens_at_all() -> None:
    formatted = Formatter(BYTES, FormatSpec(stop=("x",), reasoning_parser="think", tool_parser="hermes")).feed(
        [], EngineEnd("length")
    )
    assert formatted.deltas == []
    assert formatted.ending is not None
    assert formatted.ending.completion_tokens == 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("last", [1, 2])
def test_the_stop_token_has_no_text_but_counts(size: int, skip: bool, last: int) -> None:
    spec = FormatSpec(skip_special_tokens=skip, stop=("zz",))
    output = run(spec, cut([0, 0, last], size), vocabulary=EOT, by_token=True)
    assert output.content == "aa"
    assert output.num_tokens == 3


@pytest.mark.parametrize(("skip", "content"), [(True, "ab"), (False, "a<eot>b")])
def test_special_tokens_within_the_output(skip: bool, content: str) -> None:
    output = run(FormatSpec(skip_special_tokens=skip), [[0], [2], [1]], vocabulary=EOT, reason="length")
    assert output.content == content
    assert output.num_tokens == 3


def test_adjacent_deltas_of_one_kind_are_joined() -> None:
    spec = FormatSpec(reasoning_parser="think", tool_parser="hermes")
    text = f"<think>a < b</think>c <t d\n{CALL}\n{CALL}e"
    formatted = Formatter(BYTES, spec).feed(ids(text), EngineEnd("stop"))
    arguments = '{"city": "Paris"}'
    assert [delta if not isinstance(delta, ToolCallPiece) else delta.arguments for delta in formatted.deltas] == [
        Reasoning("a < b"), Content("c <t d\n"), "", arguments, "", arguments, Content("e")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason", "finish_reason"),
    [
        (CALL, "stop", "tool_calls"),
        (CALL, "length", "length"),
        ("no call", "stop", "stop"),
        (CALL[:-20], "stop", "tool_calls"),
        (CALL[:-20], "length", "length"),
        (CALL[:-30], "stop", "tool_calls"),
        (CALL[:40], "stop", "stop"),
        (f"{CALL} and <tool_call>{{", "stop", "tool_calls"),
    ],
)
def test_finish_reason_is_tool_calls_if_a_call_was_emitted_and_the_engine_stopped(
    text: str, reason: FinishReason, finish_reason: str
) -> None:
    for size in SIZES:
        ending = run_text(FormatSpec(tool_parser="hermes", tools=(WEATHER,)), text, size, reason).ending
        assert ending is not None
        assert ending.finish_reason == finish_reason


def test_without_a_tool_parser_calls_are_content() -> None:
    assert run_text(FormatSpec(), CALL).content == CALL


@pytest.mark.parametrize("size", SIZES)
def test_tokens_after_a_stop_string_do_not_count(size: int) -> None:
    vocabulary = vocabulary_of(b"<think>", b"hm", b"STOP", b"x", b"</think>", b"\n")
    spec = FormatSpec(stop=("STOP",), reasoning_parser="think", reasoning_state=ReasoningState.UNDECIDED)
    output = run(spec, cut([0, 1, 2, 4, 5, 5, 3, 2, 3, 1, 1], size), vocabulary=vocabulary)
    assert output.ending is not None
    assert (output.reasoning, output.content) == ("hmSTOP", "x")
    assert (output.ending.completion_tokens, output.ending.reasoning_tokens) == (8, 2)
    assert output.num_tokens == 8


def test_the_stop_string_is_found_in_the_last_tokens() -> None:
    formatted = Formatter(BYTES, FormatSpec(stop=("b",))).feed(ids("abc"), EngineEnd("length"))
    assert formatted.ending is not None
    assert (formatted.ending.finish_reason, formatted.ending.matched_stop) == ("stop", "b")
    assert formatted.num_tokens == 2


@pytest.mark.parametrize("size", SIZES)
def test_a_character_begun_in_the_prompt_is_completed(size: int) -> None:
    vocabulary = vocabulary_of(b"Hello ", b"\xf0\x9f", b"\x8c\xb6", b"!")
    output = run(FormatSpec(prompt_tail_ids=(0, 1)), cut([2, 3], size), vocabulary=vocabulary)
    assert output.content == "🌶!"


def test_text_is_the_same_for_one_two_and_five_tokens_per_message() -> None:
    text = f"<think>\nWeather? 京都\n</think>\n\nI'll look 🔥.\n{CALL}\n{CALL}"
    spec = FormatSpec(reasoning_parser="think", tool_parser="hermes", stop=("never",), min_tokens=3)
    outputs = [run_text(spec, text, size) for size in SIZES]
    assert all(output == outputs[0] for output in outputs)
    assert outputs[0].content == "I'll look 🔥.\n"
    assert outputs[0].ending is not None
    assert outputs[0].ending.completion_tokens == len(text.encode())


@pytest.mark.parametrize(
    ("spec", "param"),
    [
        (FormatSpec(tool_parser="nope"), "tool_parser"),
        (FormatSpec(reasoning_parser="nope"), "reasoning_parser"),
        (FormatSpec(stop=("",)), "stop"),
    ],
)
def test_invalid_requests_name_the_field(spec: FormatSpec, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Formatter(BYTES, spec)
    assert refused.value.param == param


def test_an_unknown_token_ends_only_this_formatter() -> None:
    good, bad = Formatter(BYTES, FormatSpec()), Formatter(BYTES, FormatSpec())
    with pytest.raises(UnknownToken, match="outside the vocabulary of 259"):
        bad.feed([65, 5000])
    assert good.feed([65]).deltas == [Content("A")]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("named", "reason", "finish"),
    [
        ("", "stop", "tool_calls"),
        ("get_weather", "stop", "stop"),
        ("", "length", "length"),
        ("get_weather", "length", "length"),
    ],
)
def test_a_call_of_a_named_function_finishes_with_stop(
    named: str, reason: FinishReason, finish: str, size: int
) -> None:
    output = run_text(FormatSpec(tool_parser="hermes", named_function=named), CALL, size, reason)
    assert output.calls == [("get_weather", '{"city": "Paris"}')]
    assert output.ending is not None
    assert output.ending.finish_reason == finish


@pytest.mark.parametrize("size", SIZES)
def test_with_calls_after_reasoning_calls_inside_reasoning_are_reasoning(size: int) -> None:
    spec = FormatSpec(
        reasoning_parser="think", reasoning_state=ReasoningState.OPEN, tool_parser="hermes", tools=(WEATHER,)
    )
    assert run_text(spec, CALL, size).calls
    spec = replace(spec, calls_after_reasoning=True)
    output = run_text(spec, CALL, size)
    assert (output.reasoning, output.calls) == (CALL, [])
    output = run_text(spec, f"{CALL}</think>{CALL}", size)
    assert (output.reasoning, len(output.calls)) == (CALL, 1)
