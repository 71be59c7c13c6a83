"""Constraints on the wire, and the errors of services about them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protos.v1 import common_pb2, engine_pb2
from svclib.errors import InvalidRequest
from tests.gateway.running import scripted_stack
from tests.gateway.scripted import GenerateCall, ScriptedDetokenizer, ScriptedEngine, ScriptedTokenizer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
JSON_OBJECT = {"type": "json_object"}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
F: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
G: dict[str, Any] = {"type": "function", "function": {"name": "g", "parameters": SCHEMA}}
STRICT: dict[str, Any] = {"type": "function", "function": {"name": "s", "parameters": CLOSED, "strict": True}}

ASKED: list[tuple[dict[str, Any], str]] = [
    ({"response_format": JSON_OBJECT}, "response_format"),
    ({"response_format": JSON_SCHEMA}, "response_format"),
    ({"response_format": JSON_SCHEMA, "tools": [F]}, "response_format"),
    ({"tools": [F], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [F], "tool_choice": F}, "tool_choice"),
    ({"tools": [F, STRICT]}, "tools[1].function.strict"),
    ({"tools": [F], "parallel_tool_calls": False}, "parallel_tool_calls"),
]


async def sent(**fields: Any) -> engine_pb2.GenerateRequest:
    """The request that the engine gets."""
    engine = ScriptedEngine()
    async with scripted_stack(engine) as stack:
        response = await stack.chat(**fields)
    assert response.status_code == 200, response.text
    (call,) = engine.calls
    return call


async def test_no_constraint() -> None:
    call = await sent(response_format={"type": "text"}, tools=[F, G])
    assert call.sampling_params.WhichOneof("constraint") is None
    assert call.reasoning_state == common_pb2.REASONING_STATE_UNSPECIFIED
    assert not call.reasoning_end_token_ids


async def test_json_object() -> None:
    call = await sent(response_format=JSON_OBJECT)
    assert call.sampling_params.WhichOneof("constraint") == "json_object"
    assert call.sampling_params.json_object


async def test_json_schema() -> None:
    call = await sent(response_format=JSON_SCHEMA, n=3)
    assert json.loads(call.sampling_params.json_schema) == SCHEMA
    assert call.sampling_params.n == 3


async def test_calls_use_the_format_of_the_parser() -> None:
    call = await sent(tools=[F, G], tool_choice="required")
    assert call.sampling_params.grammar.splitlines()[:3] == [
        "start: calls",
        'calls: "<call>" call (";<call>" call){0,127}',
        'call: "(" (function_0 | function_1) "</call>"',
    ]


async def test_special_token_tags_are_sent_by_id() -> None:
    engine, detokenizer = ScriptedEngine(), ScriptedDetokenizer()
    detokenizer.info.call_syntaxes[0].special_token_ids["<call>"] = 17
    async with scripted_stack(engine, detokenizer) as stack:
        await stack.chat(tools=[F], tool_choice=F)
    assert "calls: <[17]> call" in engine.calls[0].sampling_params.grammar.splitlines()


@pytest.mark.parametrize(
    ("rendered", "sees_tags"),
    [
        (common_pb2.REASONING_STATE_OPEN, True),
        (common_pb2.REASONING_STATE_UNDECIDED, True),
        (common_pb2.REASONING_STATE_CLOSED, False),
    ],
)
async def test_reasoning_is_not_constrained(rendered: common_pb2.ReasoningState.ValueType, sees_tags: bool) -> None:
    engine, tokenizer = ScriptedEngine(), ScriptedTokenizer()
    tokenizer.reasoning_state = rendered
    tokenizer.info.capabilities.reasoning = True
    async with scripted_stack(engine, tokenizer=tokenizer) as stack:
        await stack.chat(response_format=JSON_OBJECT)
    (call,) = engine.calls
    assert (call.reasoning_state == rendered) == sees_tags
    assert list(call.reasoning_start_token_ids) == (list(b"<t>") if sees_tags else [])
    assert list(call.reasoning_end_token_ids) == (list(b"</t>") if sees_tags else [])


async def test_no_reasoning_without_a_parser() -> None:
    engine = ScriptedEngine()
    async with scripted_stack(engine, reasoning_parser="none") as stack:
        await stack.chat(response_format=JSON_OBJECT)
    assert engine.calls[0].reasoning_state == common_pb2.REASONING_STATE_UNSPECIFIED


@pytest.mark.parametrize(
    ("fields", "named", "after_reasoning"),
    [
        ({"tools": [F, G]}, "", False),
        ({"tools": [F, G], "tool_choice": "required"}, "", True),
        ({"tools": [F, G], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "g", True),
        ({"tools": [F, STRICT]}, "", True),
        ({"response_format": JSON_OBJECT}, "", True),
    ],
)
async def test_detokenizer_gets_forced_calls(fields: dict[str, Any], named: str, after_reasoning: bool) -> None:
    detokenizer = ScriptedDetokenizer()
    async with scripted_stack(detokenizer=detokenizer) as stack:
        await stack.chat(**fields)
    (call,) = detokenizer.calls
    assert (call.named_function, call.calls_after_reasoning) == (named, after_reasoning)


@pytest.mark.parametrize(("fields", "param"), ASKED, ids=lambda value: str(value)[:50])
async def test_engine_error_about_a_constraint_names_the_client_field(fields: dict[str, Any], param: str) -> None:
    async def refuse(call: GenerateCall) -> None:
        raise InvalidRequest("no such thing", param=call.request.sampling_params.WhichOneof("constraint"))

    async with scripted_stack(ScriptedEngine(refuse)) as stack:
        for stream in (True, False):
            response = await stack.chat(**fields, stream=stream)
            assert response.status_code == 400
            assert response.json()["error"]["param"] == param
        assert (await stack.chat(**fields)).json()["error"]["message"].endswith("no such thing")


@pytest.mark.parametrize(("fields", "param"), ASKED, ids=lambda value: str(value)[:50])
async def test_engine_without_constraints(fields: dict[str, Any], param: str) -> None:
    engine = ScriptedEngine()
    engine.info.supports_constraints = False
    async with scripted_stack(engine) as stack:
        error = (await stack.chat(**fields)).json()["error"]
        assert (error["param"], error["code"]) == (param, "unsupported_parameter")
        assert (await stack.chat()).status_code == 200
    assert len(engine.calls) == 1


@pytest.mark.parametrize(("fields", "param"), ASKED, ids=lambda value: str(value)[:50])
async def test_format_without_a_call_syntax(fields: dict[str, Any], param: str) -> None:
    detokenizer = ScriptedDetokenizer()
    del detokenizer.info.call_syntaxes[:]
    async with scripted_stack(detokenizer=detokenizer) as stack:
        response = await stack.chat(**fields)
    if "tools" not in fields:
        assert response.status_code == 200
        return
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert "hermes" in response.json()["error"]["message"]


async def test_unknown_reasoning_tags() -> None:
    tokenizer = ScriptedTokenizer()
    del tokenizer.info.reasoning_tags[:]
    async with scripted_stack(tokenizer=tokenizer) as stack:
        response = await stack.chat(response_format=JSON_OBJECT)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "response_format")
        assert (await stack.chat()).status_code == 200
