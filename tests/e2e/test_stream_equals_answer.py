"""A joined stream equals the non-streamed answer, for random output, chunking and parameters."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.gateway.sse import collect
from tests.stack import Stack

NUM_CASES = 240
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("ping", "calc")
]
FORCED: list[Any] = ["required", {"type": "function", "function": {"name": "ping"}}]
"""Scripts are emitted unchanged, whatever the request asks for."""
CALLS = [
    '{"name": "ping", "arguments": {}}',
    '{"name": "ping", "arguments": {"a": "b\\"<tool_call>"}}',
    '{"name":"calc","arguments":{"x":[1,2,{"y":null}]}}',
    '{"name": "nope", "arguments": {}}',
    '{"arguments": {"k": 1}, "name": "ping"}',
    '{"name": "ping", "arguments": "{\\"a\\": 1}"}',
    '{"name": "ping", "arguments": {"u": "\\ud83d\\ude00 \\u00e9"}}',
    '{"name": "ping", "arguments": {"n": 1e999}}',
    '{"name": "ping", "arguments": null}',
    '{"name": "ping", "parameters": {"z": 0}}',
    '{"name": "ping"',
    '[{"name": "ping", "arguments": {"a": "A\n"}}, {"name": "ping", "arguments": {"a": "B"}}]',
    '{"name": "ping", "arguments": {"a": "\\d\\\'"}}\n{"name": "calc", "arguments": {"x": [1, True,]}}',
    '{"name": "ping", "arguments": {"a": 1, b}}',
]  # fmt: skip
PIECES = [
    *CALLS, "<think>", "</think>", "<tool_call>", "</tool_call>", "</tool_call>\n<tool_call>\n", '{"a', "}", "[", '"',
    "\\", "\n", "\n\n", "\r\n", " ", "\t", "\0", "Hello", "stop", "aab", "aaab", "é", "🔥", "日本", "\u200d", "�", "<",
    "</", "<t", "<th", "<|im_start|>", "<|endoftext|>", "<|im_end|>", "x" * 50,
]  # fmt: skip
STOPS = [
    "stop", "aab", "ab", "a", "é", "🔥", "日本é", "\n", "\n\n", " ", "\0", "�", "<", '"', "}", "<think>", "</think>",
    "nk>", "<tool_call>", "</tool_call>", "ping", "arguments", "llo", "x" * 10, "<|im_end|>", "<|im_start|>",
]  # fmt: skip


def random_text(chance: random.Random) -> list[str]:
    """Pieces in random order, or well-formed reasoning and calls."""
    if chance.random() < 0.7:
        return chance.choices(PIECES, k=chance.randint(0, 14))
    thinking = [
        "<think>",
        chance.choice(["hm", "\n hm \n", "hm <tool_call>"]),
        "</think>",
        chance.choice(["\n\n", " x"]),
    ]
    calls = [f"{chance.choice(['', 'text '])}<tool_call>\n{call}\n</tool_call>" for call in chance.choices(CALLS, k=2)]
    return [*chance.choice([[], thinking]), *calls, chance.choice(["", "bye", "\n"])]


def random_steps(chance: random.Random) -> list[Any]:
    """Control tokens whole, other text split anywhere, with some invalid UTF-8 between."""
    steps: list[Any] = []
    for piece in random_text(chance):
        if piece.startswith("<|"):
            steps.append(piece)
            continue
        data = piece.encode() + (chance.randbytes(2) if chance.random() < 0.1 else b"")
        while data:
            size = chance.choice([1, 1, 2, 3, 5, 8, 100])
            steps.append({"hex": data[:size].hex()})
            data = data[size:]
    return steps


def random_request(chance: random.Random) -> dict[str, Any]:
    def sometimes(share: float, **fields: Any) -> dict[str, Any]:
        return fields if chance.random() < share else {}

    max_tokens = chance.choice([1, 2, 3, 5, 10, 30, 200])
    return {
        "model": "simulated",
        "messages": [{"role": "user", "content": "hi"}],
        "seed": chance.randrange(1000),
        "simulate": {"steps": random_steps(chance)}
        | sometimes(0.3, finish="length")
        | sometimes(0.15, repeat=chance.randint(1, 4)),
        "max_tokens": max_tokens,
        **sometimes(0.5, tools=TOOLS, **sometimes(0.4, tool_choice=chance.choice(FORCED)),
                    **sometimes(0.2, parallel_tool_calls=False)),
        **sometimes(0.2, response_format={"type": "json_object"}),
        **sometimes(0.5, stop=chance.choices(STOPS, k=chance.randint(0, 4))),
        **sometimes(0.3, n=chance.randint(1, 4)),
        **sometimes(0.5, logprobs=True, top_logprobs=chance.randint(0, 5)),
        **sometimes(0.2, min_tokens=chance.randint(0, max_tokens)),
        **sometimes(0.2, ignore_eos=True),
        **sometimes(0.2, stop_token_ids=chance.choices(range(256), k=3)),
        **sometimes(0.3, chat_template_kwargs=chance.choice([{"thinking": True}, {"enable_thinking": False}])),
        **sometimes(0.2, skip_special_tokens=chance.choice([True, False])),
    }  # fmt: skip


def without_cache(usage: dict[str, Any]) -> dict[str, Any]:
    """Without cached tokens, which depend on earlier requests."""
    return {name: value for name, value in usage.items() if name != "prompt_tokens_details"}


def in_one_piece(text: str) -> Any:
    answer = json.loads(text)
    choices = []
    for choice in answer["choices"]:
        message = choice["message"]
        calls = [call["function"] for call in message.get("tool_calls", [])]
        choices.append((message["content"] or "", message.get("reasoning", ""), calls,
                        (choice["logprobs"] or {}).get("content", []), choice["finish_reason"]))  # fmt: skip
    return choices, without_cache(answer["usage"]), answer["seed"]


def joined(text: str) -> Any:
    answer = collect(text)
    assert answer.done
    choices = []
    for _, choice in sorted(answer.choices.items()):
        ids = [call.pop("id") for call in choice.calls.values()]
        assert len(set(ids)) == len(ids)
        choices.append((choice.content, choice.reasoning, list(choice.calls.values()),
                        choice.logprobs, choice.finish_reason))  # fmt: skip
    return choices, without_cache(answer.usage), answer.seed


def byte_by_byte(simulate: dict[str, Any]) -> dict[str, Any]:
    steps: list[Any] = []
    for step in simulate["steps"]:
        data = "" if isinstance(step, str) else step["hex"]
        steps += [{"hex": data[at : at + 2]} for at in range(0, len(data), 2)] if data else [step]
    return {**simulate, "steps": steps}


def check(answer: Any, request: dict[str, Any]) -> None:
    """Assert what holds for every answer."""
    choices, usage, _ = answer
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    assert usage["completion_tokens"] <= request["max_tokens"] * request.get("n", 1)
    if request.get("logprobs"):
        assert sum(len(logprobs) for *_, logprobs, _ in choices) == usage["completion_tokens"]
    named = isinstance(request.get("tool_choice"), dict)
    for content, _, calls, _, finish_reason in choices:
        assert not named or finish_reason != "tool_calls"
        assert finish_reason in ("stop", "length", "tool_calls")
        assert calls or finish_reason != "tool_calls"
        whole = calls if finish_reason != "length" else calls[:-1]
        assert all(isinstance(json.loads(call["arguments"]), dict) for call in whole)
        if not request.get("min_tokens"):
            assert not any(stop in content for stop in request.get("stop", ()))


@pytest.mark.parametrize("seed", range(4))
def test_a_joined_stream_equals_the_answer(simulated: Stack, seed: int) -> None:
    chance = random.Random(seed)
    requests = [random_request(chance) for _ in range(NUM_CASES // 4)]
    with httpx2.Client(base_url=simulated.api, timeout=30, trust_env=False) as client, ThreadPoolExecutor(4) as pool:

        def post(request: dict[str, Any]) -> str:
            response = client.post("/chat/completions", json=request)
            assert response.status_code == 200, (response.text, request)
            return response.text

        streams = [{**request, "stream": True, "stream_options": {"include_usage": True}} for request in requests]
        recut = [{**request, "simulate": byte_by_byte(request["simulate"])} for request in requests]
        texts = list(pool.map(post, [*requests, *streams, *recut]))
    thirds = (texts[start : start + len(requests)] for start in range(0, len(texts), len(requests)))
    for request, text, stream, other in zip(requests, *thirds, strict=True):
        answer = in_one_piece(text)
        check(answer, request)
        assert joined(stream) == answer, request
        assert in_one_piece(other) == answer, request
