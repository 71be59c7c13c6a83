from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.generation import request as chat
from gateway.generation.call_grammar import CallGrammar
from gateway.generation.constraint import Constraint, build_constraint, client_error, constraining_field
from gateway.policy.limits import MAX_CALL_SCHEMAS_CHARS
from svclib.errors import InvalidRequest, Unsupported
from tests.gateway.generation.test_call_grammar import HERMES

F, G, STRICT = chat.Tool("f"), chat.Tool("g"), chat.Tool("s", strict=True)
JSON, SCHEMA = chat.JsonFormat(), chat.JsonFormat('{"type": "integer"}')
REQUIRED, NAMED = chat.ToolChoice("required"), chat.ToolChoice("named", ("g",))


def request(**fields: Any) -> chat.GenerationRequest:
    return chat.GenerationRequest("m", chat.Conversation(()), chat.Sampling(), **fields)


def grammar(*tools: chat.Tool, several: bool = True) -> CallGrammar:
    return CallGrammar(HERMES, list(tools), several)


FREE: list[dict[str, Any]] = [
    {},
    {"tools": (F, G)},
    {"tools": (F,), "parallel_tool_calls": True},
    {"parallel_tool_calls": False},
]
CONSTRAINED: list[tuple[str, dict[str, Any], Constraint]] = [
    ("response_format", {"response_format": JSON}, Constraint("json_object")),
    ("response_format", {"response_format": SCHEMA}, Constraint("json_schema", '{"type": "integer"}')),
    ("tool_choice", {"tools": (F, G), "tool_choice": REQUIRED}, Constraint("grammar", grammar(F, G).only_calls())),
    ("tool_choice", {"tools": (F, G), "tool_choice": NAMED},
     Constraint("grammar", grammar(G, several=False).only_calls())),
    ("tool_choice", {"tools": (F, G), "tool_choice": REQUIRED, "parallel_tool_calls": False},
     Constraint("grammar", grammar(F, G, several=False).only_calls())),
    ("tool_choice", {"tools": (F, G), "tool_choice": REQUIRED, "response_format": SCHEMA},
     Constraint("grammar", grammar(F, G).only_calls())),
    ("tool_choice", {"tools": (F, G), "tool_choice": chat.ToolChoice("auto", ("f",))},
     Constraint("grammar", grammar(F).calls_in_text())),
    ("tool_choice", {"tools": (F, G), "tool_choice": chat.ToolChoice("required", ("g",))},
     Constraint("grammar", grammar(G).only_calls())),
    ("response_format", {"tools": (F, STRICT), "response_format": JSON},
     Constraint("grammar", grammar(F, STRICT).calls_or_json(None))),
    ("response_format", {"tools": (F,), "response_format": SCHEMA},
     Constraint("grammar", grammar(F).calls_or_json('{"type": "integer"}'))),
    ("tools[1].function.strict", {"tools": (F, STRICT)}, Constraint("grammar", grammar(F, STRICT).calls_in_text())),
    ("parallel_tool_calls", {"tools": (F,), "parallel_tool_calls": False},
     Constraint("grammar", grammar(F, several=False).calls_in_text())),
]  # fmt: skip


@pytest.mark.parametrize("fields", FREE, ids=str)
def test_nothing_is_asked(fields: dict[str, Any]) -> None:
    assert constraining_field(request(**fields)) == ""
    assert build_constraint(request(**fields), HERMES) is None


@pytest.mark.parametrize(("param", "fields", "expected"), CONSTRAINED, ids=lambda value: str(value)[:60])
def test_what_is_asked(param: str, fields: dict[str, Any], expected: Constraint) -> None:
    assert constraining_field(request(**fields)) == param
    assert build_constraint(request(**fields), HERMES) == expected


TOOLS_AND_SCHEMA = {"tools": (F, G, STRICT), "response_format": SCHEMA}
ALLOWED = {"tools": (F, G, STRICT), "tool_choice": chat.ToolChoice("required", ("s", "g"))}


@pytest.mark.parametrize(
    ("param", "fields", "expected"),
    [
        ("json_object", {"response_format": JSON}, "response_format"),
        ("json_schema", {"response_format": SCHEMA}, "response_format"),
        ("grammar", TOOLS_AND_SCHEMA, "response_format"),
        ("grammar", ALLOWED, "tool_choice"),
        ("grammar.json[0]", TOOLS_AND_SCHEMA, "tools[0].function.parameters"),
        ("grammar.json[2]", TOOLS_AND_SCHEMA, "tools[2].function.parameters"),
        ("grammar.json[3]", TOOLS_AND_SCHEMA, "response_format"),
        ("grammar.json[0]", ALLOWED, "tools[1].function.parameters"),
        ("grammar.json[1]", ALLOWED, "tools[2].function.parameters"),
    ],
)
def test_errors_name_the_client_field(param: str, fields: dict[str, Any], expected: str) -> None:
    for kind in (InvalidRequest, Unsupported):
        found = client_error(kind("too odd", param=param), request(**fields))
        assert type(found) is kind
        assert found.param == expected
        assert found.message.startswith(expected)
        assert found.message.endswith(": too odd")


def test_total_schema_size_limit() -> None:
    third = MAX_CALL_SCHEMAS_CHARS // 3
    large = tuple(chat.Tool(f"f{n}", parameters_json='{"description": "' + "x" * (third - 19) + '"}') for n in range(3))
    forced = request(tools=large, tool_choice=REQUIRED)
    assert build_constraint(forced, HERMES)
    one_more = request(tools=(*large, chat.Tool("g", parameters_json="{}")), tool_choice=REQUIRED)
    with pytest.raises(InvalidRequest) as caught:
        build_constraint(one_more, HERMES)
    assert caught.value.param == "tools"
    assert build_constraint(request(tools=one_more.tools), HERMES) is None
    assert build_constraint(request(tools=one_more.tools, tool_choice=NAMED), HERMES)


@pytest.mark.parametrize("kind", ["string", "array", ["integer", "null"]])
def test_forced_arguments_must_be_an_object(kind: Any) -> None:
    odd = chat.Tool("odd", parameters_json=json.dumps({"type": kind}))
    with pytest.raises(InvalidRequest) as caught:
        build_constraint(request(tools=(F, odd), tool_choice=REQUIRED), HERMES)
    assert caught.value.param == "tools[1].function.parameters"
    assert build_constraint(request(tools=(F, odd), tool_choice=chat.ToolChoice("named", ("f",))), HERMES)
    assert build_constraint(request(tools=(F, odd)), HERMES) is None
    for fine in ({}, {"type": "object"}, {"type": ["object", "null"]}):
        tool = chat.Tool("g", parameters_json=json.dumps(fine))
        assert build_constraint(request(tools=(F, tool), tool_choice=REQUIRED), HERMES)
