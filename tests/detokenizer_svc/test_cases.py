"""The rows of cases.jsonl, each cut in every way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.stage import FinishReason, ReasoningState, Tool
from tests.detokenizer_svc.given import SIZES, Output, cut, run

ROWS = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]


def state_after(prompt_tail: str) -> ReasoningState:
    """The reasoning state that the tokenizer finds for a prompt with this end."""
    if prompt_tail.endswith("<think>\n"):
        return ReasoningState.OPEN
    return ReasoningState.CLOSED if prompt_tail.endswith("</think>\n\n") else ReasoningState.UNDECIDED


def spec_of(row: dict[str, Any]) -> FormatSpec:
    parsers = row["parser"].split("+")
    kind, _, stop = row.get("finish", "").partition(":")
    assert kind in ("", "stop_string")
    return FormatSpec(
        stop=(stop,) if stop else (),
        reasoning_parser="think" if "think" in parsers else "",
        reasoning_state=state_after(row.get("prompt_tail", "")),
        tool_parser="hermes" if "hermes" in parsers else "",
        tools=tuple(Tool(name) for name in row.get("tools", ())),
    )


def text_of(row: dict[str, Any]) -> str:
    """The model output; a stop string that only ``finish`` names is appended."""
    stop = row.get("finish", "").partition(":")[2]
    text: str = row["text"]
    return text if stop in text else text + stop


def cuts_of(row: dict[str, Any]) -> Iterator[list[Sequence[int]]]:
    text = text_of(row).encode()
    for size in SIZES:
        yield list(cut(text, size))
    if "chunks" in row:
        yield [chunk.encode() for chunk in row["chunks"]]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_row(row: dict[str, Any]) -> None:
    expect = row["expect"]
    reason: FinishReason = "length" if expect.get("finish_reason") == "length" else "stop"
    outputs = [run(spec_of(row), pieces, reason=reason) for pieces in cuts_of(row)]
    assert all(output == outputs[0] for output in outputs)
    check(outputs[0], expect)


def check(output: Output, expect: dict[str, Any]) -> None:
    if "content" in expect:
        assert (output.content or None) == expect["content"]
    if "reasoning" in expect:
        assert (output.reasoning or None) == expect["reasoning"]
    if "tool_calls" in expect:
        calls = [{"name": name, "arguments": json.loads(arguments)} for name, arguments in output.calls]
        assert calls == expect["tool_calls"]
    if "arguments" in expect:
        assert [arguments for _, arguments in output.calls] == expect["arguments"]
    if "finish_reason" in expect:
        assert output.ending is not None
        assert output.ending.finish_reason == expect["finish_reason"]


def test_the_rows_have_unique_names() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS) > 100
