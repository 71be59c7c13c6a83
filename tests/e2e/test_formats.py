"""Output formats through the whole stack: streamed and whole answers are equal, however the output is chunked."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.stack import Stack

HI: list[Any] = [{"role": "user", "content": "hi"}]
OPEN, CLOSED, UNDECIDED = {"thinking": True}, {"enable_thinking": False}, dict[str, bool]()


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


TOOLS: list[Any] = [tool(name) for name in ("calc", "ping", "set", "w", "write", "get_weather")]


def call(name: str, arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class Case:
    """Model output, and what a client must receive. ``calls`` are names and arguments."""

    name: str
    text: str
    content: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    reasoning: str | None = None
    finish: str = "stop"
    stop: tuple[str, ...] = ()
    template: Any = None
    tools: bool = True


def raw_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


A, B = ('{"name": "get_weather", "arguments": {"city": "A"}}', '{"name": "get_weather", "arguments": {"city": "B"}}')
BOTH = (("get_weather", {"city": "A"}), ("get_weather", {"city": "B"}))
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
         content="Let me see.\n", calls=(("ping", {}),), finish="tool_calls"),
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
    Case("a raw newline in a call", raw_call("get_weather", '{"city": "Par\nis"}'),
         calls=(("get_weather", {"city": "Par\nis"}),), finish="tool_calls"),
    Case("a raw newline in a long call", raw_call("get_weather", '{"city": "' + "x" * 1200 + '\n\t"}'),
         calls=(("get_weather", {"city": "x" * 1200 + "\n\t"}),), finish="tool_calls"),
    Case("faults that are mended", raw_call("set", '{"level": "it\\\'s \\d", "on": True,}'),
         calls=(("set", {"level": "it's \\d", "on": True}),), finish="tool_calls"),
    Case("a list of calls", f"<tool_call>\n[{A},{B}]\n</tool_call>", calls=BOTH, finish="tool_calls"),
    Case("calls in a row", f"<tool_call>\n{A}\n{B}\n</tool_call>", calls=BOTH, finish="tool_calls"),
    Case("calls with commas", f"<tool_call>{A}, {B}</tool_call>", calls=BOTH, finish="tool_calls"),
    Case("white space around a call", f"Sure. {call('ping', {})} done",
         content="Sure. done", calls=(("ping", {}),), finish="tool_calls"),
    Case("nothing but white space around a call", f" \n{call('ping', {})}\n\n",
         calls=(("ping", {}),), finish="tool_calls"),
    Case("an undeclared function", call("other", {}), content=call("other", {})),
    Case("arguments that are no object", call("ping", [1]), content=call("ping", [1])),
    Case("a call that breaks", raw_call("ping", '{"a": 1, b}'),
         content=", b}}", calls=(("ping", {"a": 1}),), finish="tool_calls"),
    Case("a stop string inside thinking", "<think>Blue comes after red here.</think>The first one is red.",
         content="The first one is ", reasoning="Blue comes after red here.", stop=("red",)),
    Case("a stop string over the end of thinking", "<think>a</think>\nb", content="b", reasoning="a",
         stop=("a</think>", "</think>", "k>\nb", "<think>")),
    Case("a stop string in a call", raw_call("ping", '{"a": "b STOP"}'),
         calls=(("ping", {"a": "b "}),), finish="tool_calls", stop=("STOP",)),
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
        "stop": list(case.stop) or None,
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


@pytest.mark.parametrize("stream", [False, True])
def test_arguments_cut_by_max_tokens_stay_incomplete(simulated: Stack, stream: bool) -> None:
    case = Case("", raw_call("ping", '{"a": "b')[: -len("}\n</tool_call>")], finish="length")
    answer = ask(simulated, case, 1, stream)
    assert (seen_streamed if stream else seen_whole)(answer) == (
        "" if stream else None,
        [("ping", '{"a": "b')],
        None,
        "length",
    )


def test_arguments_are_streamed(simulated: Stack) -> None:
    started = time.monotonic()
    came: list[tuple[float, str | None, str]] = []
    steps = ['<tool_call>\n{"name": "get_weather", "arguments": {"city": "', "Par", "is", '"}}\n</tool_call>']
    for chunk in simulated.client().chat.completions.create(
        model="simulated", messages=HI, tools=TOOLS, stream=True,
        extra_body={"simulate": {"steps": steps, "delay_ms": 400}},
    ):  # fmt: skip
        for piece in chunk.choices[0].delta.tool_calls or ():
            assert piece.function is not None
            came.append((time.monotonic() - started, piece.function.name, piece.function.arguments or ""))
    assert [name for _, name, _ in came] == ["get_weather", None, None, None, None]
    assert [arguments for _, _, arguments in came] == ["", '{"city": "', "Par", "is", '"}']
    assert came[-1][0] - came[1][0] > 1, "the pieces are apart as their steps are"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("skip", [None, True, False])
@pytest.mark.parametrize("stop", ["<|im_start|>", "b<|im_start|>", "<|im_start|>user"])
def test_special_tokens_as_stop_strings(simulated: Stack, stop: str, skip: bool | None, stream: bool) -> None:
    body = {"simulate": {"steps": ["a", "b", "<|im_start|>", "user", "c"]}, "skip_special_tokens": skip}
    answer = simulated.client().chat.completions.create(
        model="simulated", messages=HI, stop=[stop], stream=stream,
        extra_body={name: value for name, value in body.items() if value is not None},
    )  # fmt: skip
    content, _, _, finish = (seen_streamed if stream else seen_whole)(answer)
    assert (content, finish) == ("a" if stop.startswith("b") else "ab", "stop")
