"""Time grows linearly with the length of the text, for any text and any cut."""

from __future__ import annotations

import time

import pytest

from detokenizer_svc.deltas import Content
from detokenizer_svc.parsers import make_parsers
from detokenizer_svc.reasoning import REASONING_PARSERS
from detokenizer_svc.stage import Chain, ParserContext, ReasoningState
from detokenizer_svc.stop import StopMatcher
from detokenizer_svc.tools import TOOL_PARSERS

FACTOR = 8
TOLERANCE = 3
"""Quadratic work would take ``FACTOR`` squared times as long."""

FRAGMENTS = {
    "letters": "a",
    "white space": " \n",
    "placeholders": "<",
    "begun tags": "<tool_cal",
    "begun closing tags": "</thin",
    "opening tags": "<tool_call>",
    "opening tags and brackets": "<tool_call>{",
    "opening tags and quotes": '<tool_call>{"',
    "strings with tags": '<tool_call>{":":"',
    "white space and tags": " \n <tool_call> ",
    "calls": '<tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call>',
    "objects of calls": '<tool_call>{"name": "f", "arguments": {"a": "b"}}, ',
    "control characters": "\n\x01\\x",
    "reasoning tags": "<think></think>",
    "closing tags": "</tool_call>",
}
STARTS = {
    "nothing": "",
    "reasoning": "<think>x",
    "an answer": "x",
    "a call": '<tool_call>{"name": "f", "arguments": {"a": "',
    "deep arguments": '<tool_call>{"name": "f", "arguments": {"a": ' + "[" * 100,
    "a call without a name": '<tool_call>{"arguments": {"a": "',
    "another member": '<tool_call>{"x": ["',
    "a call in reasoning": '<think><tool_call>{"name": "f"}</tool_call>',
    "a streamed string": '<tool_call>{"name": "f", "arguments": {"a": "\\',
    "a list of calls": '<tool_call>[{"name": "f"}',
    "an escape": '<tool_call>{"name": "\\u00',
    "a whole call": '<tool_call>{"name": "f"}',
}
PARSERS = [(reasoning, tools) for reasoning in REASONING_PARSERS for tools in TOOL_PARSERS]


def seconds_of_chain(parsers: tuple[str, str], start: str, text: str, size: int) -> float:
    """Time to parse a text in pieces of one size."""
    context = ParserContext(reasoning_state=ReasoningState.UNDECIDED)
    reasoning, calls = make_parsers(*parsers, context)
    chain = Chain(calls if reasoning is None else [reasoning, *calls])
    pieces = [Content(start), *(Content(text[at : at + size]) for at in range(0, len(text), size))]
    began = time.thread_time()
    for piece in pieces:
        chain.feed([piece])
    chain.finish([], "length")
    return time.thread_time() - began


def assert_linear(parsers: tuple[str, str], start: str, fragment: str, length: int, size: int) -> None:
    """Other programs disturb measurements, so one good measurement is enough."""
    ratios = []
    for _ in range(6):
        long = seconds_of_chain(parsers, start, fragment * (length // len(fragment)), size)
        short = seconds_of_chain(parsers, start, fragment * (length // len(fragment) // FACTOR), size)
        ratios.append(long / max(short, 1e-4))
        if ratios[-1] < FACTOR * TOLERANCE:
            return
    raise AssertionError(f"{FACTOR} times the text takes {min(ratios)} times as long")


@pytest.mark.parametrize("start", ["nothing", "reasoning", "a call"])
@pytest.mark.parametrize("fragment", FRAGMENTS)
@pytest.mark.parametrize("parsers", PARSERS)
def test_a_long_text_at_once(parsers: tuple[str, str], fragment: str, start: str) -> None:
    assert_linear(parsers, STARTS[start], FRAGMENTS[fragment], 250_000, 250_000)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("fragment", ["letters", "white space", "begun tags"])
@pytest.mark.parametrize("parsers", PARSERS)
def test_a_long_text_one_character_at_a_time(parsers: tuple[str, str], fragment: str, start: str) -> None:
    assert_linear(parsers, STARTS[start], FRAGMENTS[fragment], 40_000, 1)


@pytest.mark.parametrize(
    ("stop", "fragment"),
    [(["a" * 1023 + "b"], "a"), (["ab" * 500 + "c", "b" * 600], "ab"), (["a" * n + "b" for n in range(1, 64)], "a")],
)
def test_stop_strings_that_almost_match_take_few_steps_per_character(stop: list[str], fragment: str) -> None:
    matcher = StopMatcher(stop)
    steps = 0
    fallback = matcher._automaton.fallback

    class Counting(list[int]):
        def __getitem__(self, state: int) -> int:  # type: ignore[override]
            nonlocal steps
            steps += 1
            return fallback[state]

    matcher._automaton.fallback = Counting(fallback)
    text = fragment * (20_000 // len(fragment))
    out = "".join(matcher.feed(text[at : at + 7]) for at in range(0, len(text), 7))
    assert out + matcher.interrupt() == text
    assert steps <= len(text)
