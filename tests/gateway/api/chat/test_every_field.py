"""No request field is accepted and ignored: each reaches a service, changes the answer, or is a label."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.api.chat.messages import Message
from gateway.api.chat.schema import ChatCompletion, StreamOptions
from gateway.api.chat.tools import Function
from gateway.api.schemas.simulate import Simulate
from tests.gateway.running import HI, scripted_stack
from tests.gateway.scripted import ScriptedDetokenizer, ScriptedEngine, ScriptedTokenizer
from tests.gateway.sse import collect

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
FUNCTION: dict[str, Any] = {
    "name": "f",
    "description": "d",
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    "strict": True,
}
CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
BEGUN: list[Any] = [*HI, {"role": "assistant", "content": "Yes, "}]


@dataclass(frozen=True, slots=True)
class Row:
    """A field and what a service must be asked because of it. ``beside`` are other fields of the request."""

    name: str
    value: Any
    seen: Callable[[Any], Any]
    expected: Any
    beside: dict[str, Any]

    def __str__(self) -> str:
        return self.name


def row(name: str, value: Any, seen: Callable[[Any], Any], expected: Any, **beside: Any) -> Row:
    return Row(name, value, seen, expected, beside)


def sampling(name: str, value: Any, expected: Any = None, *, wire: str = "", **beside: Any) -> Row:
    """A field of ``SamplingParams``, with its own name unless ``wire`` is given."""

    def seen(call: Any) -> Any:
        params, field = call.sampling_params, wire or name
        found = getattr(params, field)
        if field in ("stop_token_ids", "logit_bias"):
            return list(found) if field == "stop_token_ids" else dict(found)
        return found if params.HasField(field) else None

    return row(name, value, seen, value if expected is None else expected, **beside)


def constraint(call: Any) -> Any:
    return call.sampling_params.WhichOneof("constraint")


def script(name: str, value: Any) -> Row:
    steps = {} if name == "steps" else {"steps": ["x"]}

    def seen(call: Any) -> Any:
        if name == "steps":
            return [bytes(step.token_ids) for step in call.simulate.steps]
        return getattr(call.simulate, name)

    return row("simulate", steps | {name: value}, seen, [b"a", b"b"] if name == "steps" else value)


ENGINE = [
    sampling("temperature", 0.5),
    sampling("top_p", 0.25),
    sampling("top_k", 7),
    sampling("min_p", 0.125),
    sampling("presence_penalty", 0.5),
    sampling("frequency_penalty", 0.25),
    sampling("repetition_penalty", 1.5),
    sampling("logit_bias", {"5": 1.5}, {5: 1.5}),
    sampling("seed", 11),
    sampling("max_tokens", 9),
    sampling("max_completion_tokens", 9, wire="max_tokens"),
    sampling("min_tokens", 2),
    sampling("stop_token_ids", [3, 4]),
    sampling("ignore_eos", True),
    sampling("n", 3),
    sampling("logprobs", True, 0),
    sampling("top_logprobs", 4, wire="logprobs", logprobs=True),
    row("response_format", {"type": "json_object"}, constraint, "json_object"),
    row("tool_choice", "required", constraint, "grammar", tools=[TOOL]),
    row("parallel_tool_calls", False, constraint, "grammar", tools=[TOOL]),
    script("steps", ["a", {"hex": "62"}]),
    script("repeat", 3),
    script("delay_ms", 2.5),
    script("finish", "length"),
]

DETOKENIZER = [
    row("stop", ["x", "y"], lambda call: list(call.stop), ["x", "y"]),
    row("min_tokens", 2, lambda call: call.min_tokens, 2),
    row(
        "skip_special_tokens",
        False,
        lambda call: call.skip_special_tokens if call.HasField("skip_special_tokens") else None,
        False,
    ),
    row("tools", [TOOL], lambda call: [tool.name for tool in call.tools], ["f"]),
    row("tools", [TOOL], lambda call: call.tool_parser, "hermes"),
    row("continue_final_message", True, lambda call: bytes(call.prompt_tail_ids), b"hiYes, ", messages=BEGUN),
]


def last(name: str) -> Callable[[Any], Any]:
    return lambda call: getattr(call.messages[-1], name)


def function(name: str) -> Callable[[Any], Any]:
    return lambda call: getattr(call.tools[0], name) if call.tools else None


def calls(call: Any) -> Any:
    return [(each.id, each.name, each.arguments) for each in call.messages[-1].tool_calls]


def messages(name: str, message: dict[str, Any], seen: Callable[[Any], Any], expected: Any, *before: Any) -> Row:
    """A field of the last message."""
    return row(f"messages[].{name}", [*before, message], seen, expected)


TOKENIZER = [
    row("messages", [{"role": "user", "content": "hello"}], last("text"), "hello"),
    row(
        "add_generation_prompt",
        False,
        lambda call: call.add_generation_prompt if call.HasField("add_generation_prompt") else None,
        False,
    ),
    row("continue_final_message", True, lambda call: call.continue_final_message, True, messages=BEGUN),
    row(
        "chat_template_kwargs",
        {"mood": [1]},
        lambda call: json.loads(call.chat_template_kwargs_json or "null"),
        {"mood": [1]},
    ),
    *(
        row("tools", [{"type": "function", "function": FUNCTION}], function(wire), expected)
        for wire, expected in (
            ("name", "f"),
            ("description", "d"),
            ("parameters_json", json.dumps(FUNCTION["parameters"], separators=(",", ":"))),
            ("strict", True),
        )
    ),
    messages("role", {"role": "system", "content": "x"}, last("role"), "system"),
    messages("content", {"role": "user", "content": "x"}, last("text"), "x"),
    messages(
        "content",
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        lambda call: [part.text for part in call.messages[-1].parts.parts],
        ["x", "y"],
    ),
    messages("name", {"role": "user", "content": "x", "name": "Ada"}, last("name"), "Ada"),
    messages("tool_calls", {"role": "assistant", "tool_calls": [CALL]}, calls, [("c1", "f", '{"a":1}')]),
    messages(
        "tool_call_id",
        {"role": "tool", "content": "x", "tool_call_id": "c1"},
        last("tool_call_id"),
        "c1",
        {"role": "assistant", "tool_calls": [CALL]},
    ),
    messages("reasoning", {"role": "assistant", "reasoning": "hm"}, last("reasoning_content"), "hm"),
    messages("reasoning_content", {"role": "assistant", "reasoning_content": "hm"}, last("reasoning_content"), "hm"),
    messages("refusal", {"role": "assistant", "refusal": "no"}, last("text"), "no"),
]

IN_THE_ANSWER = {"model", "stream", "stream_options"}
LABELS = {
    "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier", "metadata",
}  # fmt: skip
"""Accepted without an effect on the output, see the README."""
REPLAYED = {
    "annotations", "cache_control", "id", "parsed", "provider_specific_fields", "reasoning_details", "thinking_blocks",
}  # fmt: skip
"""Parts of earlier answers that clients send back."""


async def asked(service: str, *requests: dict[str, Any]) -> list[Any]:
    """What a service is asked for each of the requests."""
    peers: dict[str, Any] = {
        "engine": ScriptedEngine(),
        "detokenizer": ScriptedDetokenizer(),
        "tokenizer": ScriptedTokenizer(),
    }
    found = []
    async with scripted_stack(**peers) as stack:
        for fields in requests:
            response = await stack.chat(**fields)
            assert response.status_code == 200, response.text
            assert "x-pellucid-ignored" not in response.headers
            found.append(peers[service].calls[-1])
    return found


async def check(service: str, row: Row) -> None:
    field = row.name.partition("[")[0]
    without, given = await asked(service, row.beside, row.beside | {field: row.value})
    assert row.seen(without) != row.expected, "the row shows nothing"
    assert row.seen(given) == row.expected


@pytest.mark.parametrize("row", ENGINE, ids=str)
async def test_fields_reach_the_engine(row: Row) -> None:
    await check("engine", row)


@pytest.mark.parametrize("row", DETOKENIZER, ids=str)
async def test_fields_reach_the_detokenizer(row: Row) -> None:
    await check("detokenizer", row)


@pytest.mark.parametrize("row", TOKENIZER, ids=str)
async def test_fields_reach_the_tokenizer(row: Row) -> None:
    await check("tokenizer", row)


async def test_fields_change_the_answer() -> None:
    async with scripted_stack(model_aliases="other") as stack:
        assert (await stack.chat(model="other")).json()["model"] == "other"
        plain = collect((await stack.chat(stream=True)).text)
        assert (plain.done, plain.usage, set(plain.usages)) == (True, None, {None})
        asked = {"include_usage": True, "continuous_usage_stats": True}
        told = collect((await stack.chat(stream=True, stream_options=asked)).text)
        assert told.usage is not None
        assert None not in told.usages
        refused = await stack.chat(stream=True, stream_options={"include_obfuscation": True})
        assert refused.json()["error"]["param"] == "stream_options.include_obfuscation"


def test_every_field_has_a_row() -> None:
    rows = {row.name for row in (*ENGINE, *DETOKENIZER, *TOKENIZER)}
    top = {name for name in rows if not name.startswith("messages[")}
    assert top | IN_THE_ANSWER | LABELS == set(ChatCompletion.model_fields)
    assert {name.removeprefix("messages[].") for name in rows - top} | REPLAYED == set(Message.model_fields)
    assert set(StreamOptions.model_fields) == {"include_usage", "continuous_usage_stats", "include_obfuscation"}
    assert set(Simulate.model_fields) == {"steps", "repeat", "delay_ms", "finish"}
    assert set(FUNCTION) | {"cache_control", "defer_loading"} == set(Function.model_fields)
