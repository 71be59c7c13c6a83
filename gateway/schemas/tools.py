"""What the model may call: ``tools`` and ``tool_choice``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import orjson
from pydantic import Field

from gateway import chat
from gateway.json_body import check_depth
from gateway.limits import MAX_DESCRIPTION_CHARS, MAX_SCHEMA_BYTES
from gateway.schemas.base import Schema
from svclib.errors import InvalidRequest, Unsupported


class Function(Schema):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Schema):
    type: str
    function: Function | None = None

    def unknown(self, prefix: str = "") -> Iterator[str]:
        yield from super().unknown(prefix)
        if self.function is not None:
            yield from self.function.unknown(f"{prefix}function.")


def read_tools(tools: Sequence[Tool]) -> tuple[chat.Tool, ...]:
    """The declared tools. Raises ``InvalidRequest``."""
    read = tuple(_read_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools))
    names: set[str] = set()
    for number, tool in enumerate(read):
        if tool.name in names:
            param = f"tools[{number}].function.name"
            raise InvalidRequest(f"{param} is declared twice", param=param)
        names.add(tool.name)
    return read


def _read_tool(tool: Tool, param: str) -> chat.Tool:
    if tool.type != "function":
        raise Unsupported(f"{param}.type must be `function`; other tools are not supported", param=f"{param}.type")
    if tool.function is None:
        raise InvalidRequest(f"{param}.function is missing", param=f"{param}.function")
    function = tool.function
    if function.strict:
        raise Unsupported("strict tools are not supported", param=f"{param}.function.strict")
    return chat.Tool(
        function.name,
        function.description,
        _read_parameters(function.parameters, f"{param}.function.parameters"),
        function.strict,
    )


def _read_parameters(parameters: dict[str, Any] | None, param: str) -> str | None:
    if parameters is None:
        return None
    return dump_object(parameters, param, MAX_SCHEMA_BYTES)


def dump_object(value: dict[str, Any], param: str, max_bytes: int) -> str:
    """An object as JSON text. Raises ``InvalidRequest`` when it is too deep or too large."""
    check_depth(value, param)
    text = orjson.dumps(value)
    if len(text) > max_bytes:
        raise InvalidRequest(f"{param} is larger than {max_bytes} bytes", param=param)
    return text.decode()


def read_tool_choice(choice: Any, tools: Sequence[chat.Tool]) -> bool:
    """Whether the tools are offered to the model. Raises ``InvalidRequest`` and ``Unsupported``."""
    match choice:
        case None | "auto":
            return True
        case "none":
            return False
        case "required":
            wanted = None
        case {"type": "function", "function": {"name": str(wanted)}}:
            pass
        case {"type": "allowed_tools" | "custom"}:
            raise Unsupported("this kind of tool_choice is not supported", param="tool_choice")
        case _:
            raise InvalidRequest("tool_choice must be `none`, `auto`, `required` or a function", param="tool_choice")
    if not tools:
        raise InvalidRequest("tool_choice asks for a tool, and there are no tools", param="tool_choice")
    if wanted is not None and wanted not in {tool.name for tool in tools}:
        raise InvalidRequest("tool_choice names a function that is not among the tools", param="tool_choice")
    raise Unsupported("tool_choice must be `none` or `auto`; the model cannot be made to call", param="tool_choice")
