"""What a model may write, through the whole stack: the same answer in a stream and in one piece, for every cut."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.stack import Stack

HI: list[Any] = [{"role": "user", "content": "hi"}]
OPEN, CLOSED, UNDECIDED = {"thinking": True}, {"enable_thinking": False}, dict[str, bool]()


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


TOOLS = [tool(name) for name in ("calc", "ping", "set", "w", "write", "get_weather")]


def call(name: str, arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class Case:
    """What is written, and what a client must see of it. ``calls`` are names and arguments."""

    name: str
    text: str
    content: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    reasoning: str | None = None
    finish: str = "stop"
    template: Any = None
    tools: bool = True


NESTED = {"numbers": [{"v": 1}, {"v": 2}], "op": "sum"}
TRICKY = {"text": "close with </tool_call> and } ]"}
CASES = [
    Case("nested arguments", call("calc", NESTED), calls=(("calc", NESTED),), finish="tool_calls"),
    Case("no arguments", call("ping", {}), calls=(("ping", {}),), finish="tool_calls"),
    Case("numbers and booleans", call("set", {"level": 12, "on": True}),
         calls=(("set", {"level": 12, "on": True}),), finish="tool_calls"),
    Case("two calls", call("w", {"c": "A"}) + "\n" + call("w", {"c": "B"}),
         calls=(("w", {"c": "A"}), ("w", {"c": "B"})), finish="tool_calls"),
    Case("a tag in a string", call("write", TRICKY), calls=(("write", TRICKY),), finish="tool_calls"),
    Case("text before a call", "Let me see.\n" + call("ping", {}),
         content="Let me see.", calls=(("ping", {}),), finish="tool_calls"),
    Case("a broken call is text", '<tool_call>\n{"name": "ping", "argu', content='<tool_call>\n{"name": "ping", "argu'),
    Case("braces are text", '{"n', content='{"n'),
    Case("a call without tools is text", call("ping", {}), content=call("ping", {}), tools=False),
    Case("cut while thinking", "I should add 2 and 2, so",
         reasoning="I should add 2 and 2, so", finish="length", template=OPEN),
    Case("thinking, then content", "<think>a</think>b", content="b", reasoning="a"),
    Case("no thinking after it was closed", "Hello!", content="Hello!", template=CLOSED),
    Case("tags after it was closed are text", "BEGIN <think> AFTER END", content="BEGIN <think> AFTER END",
         template=CLOSED),
    Case("thinking, then a call", "<think>hm</think>\n" + call("ping", {}), reasoning="hm",
         calls=(("ping", {}),), finish="tool_calls"),
    Case("a call at the end of thinking that is never closed",
         "Let me call.\n" + call("get_weather", {"city": "Paris"}), reasoning="Let me call.",
         calls=(("get_weather", {"city": "Paris"}),), finish="tool_calls", template=OPEN),
    Case("not only ASCII", "Grüße 🔥 京都", content="Grüße 🔥 京都"),
    Case("nothing", "", content=""),
]  # fmt: skip


def ask(stack: Stack, case: Case, size: int, stream: bool) -> Any:
    data = case.text.encode()
    steps = [{"hex": data[start : start + size].hex()} for start in range(0, len(data), size)]
    body: dict[str, Any] = {
        "model": "simulated",
        "messages": HI,
        "tools": TOOLS if case.tools else None,
        "stream": stream,
        "extra_body": {
            "simulate": {"steps": steps or [""], "finish": "length" if case.finish == "length" else "stop"},
            "chat_template_kwargs": case.template,
        },
    }
    return stack.client().chat.completions.create(**{name: value for name, value in body.items() if value is not None})


def seen_whole(answer: Any) -> Any:
    choice = answer.choices[0]
    calls = [(made.function.name, made.function.arguments) for made in choice.message.tool_calls or ()]
    reasoning = getattr(choice.message, "reasoning_content", None)
    return choice.message.content, calls, reasoning, choice.finish_reason


def seen_streamed(chunks: Any) -> Any:
    content, reasoning, finish = "", "", None
    calls: dict[int, list[str]] = {}
    ids = set()
    for chunk in chunks:
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        finish = choice.finish_reason or finish
        for piece in choice.delta.tool_calls or ():
            if piece.index not in calls:
                assert piece.index == len(calls)
                assert piece.type == "function"
                ids.add(piece.id)
                calls[piece.index] = [piece.function.name, ""]
            else:
                assert piece.id is piece.type is piece.function.name is None
            calls[piece.index][1] += piece.function.arguments or ""
    assert len(ids) == len(calls)
    return content, [tuple(made) for made in calls.values()], reasoning or None, finish


@pytest.mark.parametrize("size", [1, 3, 8, 10_000])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_formats(simulated: Stack, case: Case, size: int) -> None:
    content, calls, reasoning, finish = seen_whole(ask(simulated, case, size, stream=False))
    assert content == case.content
    assert [(name, json.loads(arguments)) for name, arguments in calls] == list(case.calls)
    assert reasoning == case.reasoning
    assert finish == case.finish
    streamed = seen_streamed(ask(simulated, case, size, stream=True))
    assert streamed == (content or "", calls, reasoning, finish)
