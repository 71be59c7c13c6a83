from __future__ import annotations

from typing import Any

import pytest

from gateway.api.chat.read import read_chat
from gateway.generation import request as chat
from gateway.policy import limits
from svclib.errors import InvalidRequest, Unsupported

HI = [{"role": "user", "content": "hi"}]


def tool(name: Any = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | function}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


def read_whole(**fields: Any) -> chat.GenerationRequest:
    return read_chat({"model": "m", "messages": HI} | fields, reject_unknown=True).generation


def read(**fields: Any) -> tuple[chat.Tool, ...]:
    return read_whole(**fields).tools


def fault(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    return caught.value


def test_no_tools() -> None:
    assert read() == read(tools=None) == read(tools=[]) == ()


def test_tools() -> None:
    schema = {"type": "object", "properties": {"ß": {"enum": [1, 2.5, None]}}}
    assert read(tools=[tool("a-B_9", description="d", parameters=schema), tool("b", strict=False)]) == (
        chat.Tool("a-B_9", "d", '{"type":"object","properties":{"ß":{"enum":[1,2.5,null]}}}'),
        chat.Tool("b", strict=False),
    )
    assert read(tools=[tool(strict=True)]) == (chat.Tool("f", strict=True),)


FAULTS: list[tuple[str, Any]] = [
    ("tools", {}),
    ("tools", "f"),
    ("tools", [tool(f"f{number}") for number in range(limits.MAX_TOOLS + 1)]),
    ("tools[0]", [5]),
    ("tools[0]", [None]),
    ("tools[0].type", [{}]),
    ("tools[0].type", [{"function": {"name": "f"}}]),
    ("tools[0].type", [{"type": "psychic", "function": {"name": "f"}}]),
    ("tools[0].type", [{"type": "custom", "custom": {"name": "f"}}]),
    ("tools[0].type", [{"type": 5}]),
    ("tools[0].defer_loading", [tool() | {"defer_loading": True}]),
    ("tools[0].defer_loading", [tool(defer_loading=True)]),
    ("tools[0].function", [{"type": "function"}]),
    ("tools[0].function", [{"type": "function", "function": None}]),
    ("tools[0].function", [{"type": "function", "function": "f"}]),
    ("tools[0].function.name", [{"type": "function", "function": {}}]),
    ("tools[0].function.name", [tool(None)]),
    ("tools[0].function.name", [tool(5)]),
    ("tools[0].function.name", [tool("")]),
    ("tools[0].function.name", [tool("two words")]),
    ("tools[0].function.name", [tool("f\n")]),
    ("tools[0].function.name", [tool("ü")]),
    ("tools[0].function.name", [tool("f" * 65)]),
    ("tools[1].function.name", [tool("f"), tool("f")]),
    ("tools[0].function.description", [tool(description=5)]),
    ("tools[0].function.description", [tool(description="x" * (limits.MAX_DESCRIPTION_CHARS + 1))]),
    ("tools[0].function.parameters", [tool(parameters="x")]),
    ("tools[0].function.parameters", [tool(parameters=[1])]),
    ("tools[0].function.parameters", [tool(parameters={"a": "x" * limits.MAX_SCHEMA_BYTES})]),
    ("tools[0].function.strict", [tool(strict="yes")]),
    ("tools[0].function.parameters", [tool(strict=True, parameters={"type": "object"})]),
    ("tools[1].function.parameters", [tool(), tool("g", strict=True, parameters={"properties": {"a": {}}})]),
]


@pytest.mark.parametrize(("param", "tools"), FAULTS, ids=lambda value: str(value)[:60])
def test_errors_name_the_field(param: str, tools: Any) -> None:
    assert fault(tools=tools).param == param


def test_at_the_limits() -> None:
    assert read(tools=[tool("f" * 64, description="x" * limits.MAX_DESCRIPTION_CHARS)])
    assert len(read(tools=[tool(f"f{number}") for number in range(limits.MAX_TOOLS)])) == limits.MAX_TOOLS
    room = limits.MAX_SCHEMA_BYTES - len('{"a":""}')
    assert read(tools=[tool(parameters={"a": "x" * room})])
    assert fault(tools=[tool(parameters={"a": "x" * (room + 1)})]).param == "tools[0].function.parameters"


def test_schemas_are_bounded_in_depth() -> None:
    deep: dict[str, Any] = {}
    for _ in range(limits.MAX_JSON_DEPTH - 1):
        deep = {"a": deep}
    assert read(tools=[tool(parameters=deep)])
    assert fault(tools=[tool(parameters={"a": {"a": deep}})]).param == "tools[0].function.parameters"


def test_tool_choice_none_removes_tools_but_checks_them() -> None:
    assert read(tools=[tool()], tool_choice="none") == ()
    assert read(tools=[tool()], tool_choice="auto") == (chat.Tool("f"),)
    assert fault(tools=[tool(""), tool()], tool_choice="none").param == "tools[0].function.name"


@pytest.mark.parametrize("choice", ["none", "auto", None])
def test_choices_that_need_no_tools(choice: Any) -> None:
    assert read(tool_choice=choice) == ()


@pytest.mark.parametrize("choice", ["required", named("f"), allowed("auto", "f"), allowed("required", "f")])
@pytest.mark.parametrize("tools", [None, []])
def test_choices_that_need_tools(choice: Any, tools: Any) -> None:
    error = fault(tools=tools, tool_choice=choice)
    assert error.param == "tool_choice"
    assert not isinstance(error, Unsupported)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, chat.ToolChoice("auto")),
        ("auto", chat.ToolChoice("auto")),
        ("none", chat.ToolChoice("auto")),
        ("required", chat.ToolChoice("required")),
        (named("g"), chat.ToolChoice("named", ("g",))),
        (allowed("auto", "g", "f", "g"), chat.ToolChoice("auto", ("g", "f"))),
        (allowed("required", "f"), chat.ToolChoice("required", ("f",))),
    ],
)
def test_choices(choice: Any, expected: chat.ToolChoice) -> None:
    request = read_whole(tools=[tool("f"), tool("g")], tool_choice=choice)
    assert request.tool_choice == expected
    assert [each.name for each in request.tools] == ([] if choice == "none" else ["f", "g"])


def test_custom_tool_choice_is_unsupported() -> None:
    error = fault(tools=[tool()], tool_choice={"type": "custom", "custom": {"name": "f"}})
    assert error.param == "tool_choice"
    assert isinstance(error, Unsupported)


@pytest.mark.parametrize(
    "choice",
    [
        "sometimes", "", 5, [], {}, {"type": "function"}, {"type": "function", "function": {}}, named("g"), True,
        {"type": "function", "name": "f"}, {"type": "function", "function": {"name": 5}}, {"type": "allowed_tools"},
        {"type": "allowed_tools", "allowed_tools": {}}, allowed("auto"), allowed("always", "f"), allowed("auto", "g"),
        allowed("required", "f", "g"), {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": "f"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["f"]}},
        {"type": "allowed_tools", "mode": "auto", "tools": [named("f")]},
    ],
)  # fmt: skip
def test_invalid_tool_choices(choice: Any) -> None:
    error = fault(tools=[tool()], tool_choice=choice)
    assert error.param == "tool_choice"
    assert not isinstance(error, Unsupported)


def test_parallel_tool_calls() -> None:
    assert read_whole().parallel_tool_calls
    assert read_whole(parallel_tool_calls=None, tools=[tool()]).parallel_tool_calls
    assert read_whole(parallel_tool_calls=True).parallel_tool_calls
    assert not read_whole(parallel_tool_calls=False, tools=[tool()]).parallel_tool_calls
    assert fault(parallel_tool_calls=1).param == "parallel_tool_calls"


def test_forced_call_with_continue_final_message() -> None:
    messages = [*HI, {"role": "assistant", "content": "I'll call"}]
    fields = {"messages": messages, "continue_final_message": True, "tools": [tool()]}
    read(**fields)
    assert fault(**fields, tool_choice="required").param == "continue_final_message"
