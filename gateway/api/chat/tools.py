"""The fields ``tools`` and ``tool_choice``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import orjson
from pydantic import Field

from gateway.api.schemas.base import Schema
from gateway.api.schemas.json_schema import check_strict
from gateway.api.schemas.schema_language import check_schema
from gateway.generation import request as neutral
from gateway.http.json_body import check_depth
from gateway.policy.limits import MAX_DESCRIPTION_CHARS, MAX_SCHEMA_BYTES
from svclib.errors import InvalidRequest, Unsupported


class Function(Schema):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: Any = None
    """For the caches of other servers; no effect on the output."""
    defer_loading: bool | None = None


class Tool(Schema):
    type: str
    function: Function | None = None
    cache_control: Any = None
    defer_loading: bool | None = None

    def unknown(self, prefix: str = "") -> Iterator[str]:
        yield from super().unknown(prefix)
        if self.function is not None:
            yield from self.function.unknown(f"{prefix}function.")


def read_tools(tools: Sequence[Tool]) -> tuple[neutral.Tool, ...]:
    """The declared tools. Raises ``InvalidRequest``."""
    read = tuple(_read_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools))
    names: set[str] = set()
    for number, tool in enumerate(read):
        if tool.name in names:
            param = f"tools[{number}].function.name"
            raise InvalidRequest(f"{param} must be unique among the tools", param=param)
        names.add(tool.name)
    return read


def _read_tool(tool: Tool, param: str) -> neutral.Tool:
    if tool.type != "function":
        raise Unsupported(f"{param}.type must be `function`; other types are not supported", param=f"{param}.type")
    if tool.function is None:
        raise InvalidRequest(f"{param}.function is missing", param=f"{param}.function")
    function = tool.function
    if tool.defer_loading or function.defer_loading:
        raise Unsupported(f"{param}.defer_loading is not supported", param=f"{param}.defer_loading")
    return neutral.Tool(
        function.name,
        function.description,
        _read_parameters(function.parameters, f"{param}.function.parameters", strict=bool(function.strict)),
        function.strict,
    )


def _read_parameters(parameters: dict[str, Any] | None, param: str, *, strict: bool) -> str | None:
    if parameters is None:
        return None
    text = dump_object(parameters, param, MAX_SCHEMA_BYTES)
    check_schema(parameters, param=param, place=param)
    if strict:
        check_strict(parameters, param=param, place=param)
    return text


def dump_object(value: dict[str, Any], param: str, max_bytes: int) -> str:
    """An object as JSON text. Raises ``InvalidRequest`` if it is too deep or too large."""
    check_depth(value, param)
    text = orjson.dumps(value)
    if len(text) > max_bytes:
        raise InvalidRequest(f"{param} must be at most {max_bytes} bytes as JSON", param=param)
    return text.decode()


def read_tool_choice(choice: Any, tools: Sequence[neutral.Tool]) -> neutral.ToolChoice | None:
    """None: ``none``, no tool may be called. Raises ``InvalidRequest`` and ``Unsupported``."""
    match choice:
        case None | "auto":
            return neutral.ToolChoice()
        case "none":
            return None
        case "required":
            _check_declared(None, tools)
            return neutral.ToolChoice("required")
        case {"type": "function", "function": {"name": str(name)}}:
            _check_declared((name,), tools)
            return neutral.ToolChoice("named", (name,))
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": [*allowed]}}:
            names = tuple(dict.fromkeys(map(_allowed_name, allowed)))
            _check_declared(names, tools)
            return neutral.ToolChoice(mode, names)
        case {"type": "custom"}:
            raise Unsupported("tool_choice.type `custom` is not supported", param="tool_choice")
    raise InvalidRequest(
        "tool_choice must be `none`, `auto`, `required`, or an object of type `function` or `allowed_tools`",
        param="tool_choice",
    )


def _allowed_name(entry: Any) -> str:
    match entry:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
    raise InvalidRequest("each of tool_choice.allowed_tools.tools must be a function", param="tool_choice")


def _check_declared(names: Sequence[str] | None, tools: Sequence[neutral.Tool]) -> None:
    """Raises ``InvalidRequest`` without tools, for an empty list of names, and for a name that is not declared."""
    if not tools:
        raise InvalidRequest("tool_choice requires tools", param="tool_choice")
    if names is None:
        return
    if not names:
        raise InvalidRequest("tool_choice.allowed_tools.tools must not be empty", param="tool_choice")
    if not {tool.name for tool in tools}.issuperset(names):
        raise InvalidRequest("tool_choice names a function that is not in tools", param="tool_choice")
