"""Adapts a client's conversation to what the chat template can express, or refuses it.

``developer`` becomes ``system`` if the template does not support it; system turns are merged where the template allows
only one; parts are joined; a call's arguments become an object; a tool result gets its function's name; content that
the template would silently drop is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

from svclib.errors import InvalidRequest, Unsupported
from tokenizer_svc.capabilities import Capabilities, NullContent, Turn, with_null_content
from tokenizer_svc.client_json import parse_object
from tokenizer_svc.conversation import ROLES, Message, Tool, ToolCall

PARTS_JOINER: Final = "\n"
"""Joins content parts for templates that need a string."""
SYSTEM_JOINER: Final = "\n\n"
"""Joins system turns, and system text with the user turn that it is merged into."""

_Numbered = tuple[int, Message]
"""A message and its index in the request, for errors."""


def adapt_tools(tools: Sequence[Tool], capabilities: Capabilities) -> list[Turn] | None:
    """The tools in the template's form; None if there are none."""
    if not tools:
        return None
    if not capabilities.tools:
        raise Unsupported("this model's chat template does not support tools", param="tools")
    return [_tool(tool, f"tools[{index}].function", capabilities) for index, tool in enumerate(tools)]


def _tool(tool: Tool, param: str, capabilities: Capabilities) -> Turn:
    function: Turn = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = parse_object(tool.parameters, f"{param}.parameters")
    if tool.strict is not None:
        function["strict"] = tool.strict
    if not capabilities.bare_tools:
        function = {"description": "", "parameters": {"type": "object", "properties": {}}} | function
    return {"type": "function", "function": function}


def adapt_messages(messages: Sequence[Message], capabilities: Capabilities) -> list[Turn]:
    """The messages in the template's form."""
    named = _with_function_names(messages)
    numbered = [(index, _known_role(index, message, capabilities)) for index, message in enumerate(named)]
    placed = _place_system(numbered, capabilities)
    return [turn for index, message in placed for turn in _turns(index, message, capabilities)]


def _with_function_names(messages: Sequence[Message]) -> Iterator[Message]:
    """Add the function's name to tool results: some templates need it, most clients omit it."""
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            names = {call.id: call.name for call in message.tool_calls}
        if message.role == "tool" and not message.name:
            message = replace(message, name=names.get(message.tool_call_id or "", message.name))
        yield message


def _known_role(index: int, message: Message, capabilities: Capabilities) -> Message:
    _check(index, message)
    if message.role == "developer" and not (index == 0 and capabilities.developer_role):
        return replace(message, role="system")
    if message.role == "tool" and not capabilities.tool_results:
        raise Unsupported("this model's chat template does not support tool results", param=f"messages[{index}].role")
    return message


def _check(index: int, message: Message) -> None:
    if message.role not in ROLES:
        param = f"messages[{index}].role"
        raise InvalidRequest(f"{param} must be one of {', '.join(sorted(ROLES))}", param=param)
    if message.role == "assistant":
        return
    if message.content is None:
        raise InvalidRequest(f"a {message.role} message needs content", param=f"messages[{index}].content")
    for name, value in (("tool_calls", message.tool_calls), ("reasoning_content", message.reasoning_content)):
        if value:
            raise InvalidRequest(f"only an assistant message may have {name}", param=f"messages[{index}].{name}")


def _place_system(numbered: list[_Numbered], capabilities: Capabilities) -> list[_Numbered]:
    """Merge and move system turns to where the template supports them."""
    leading = list(takewhile(lambda entry: entry[1].role in ("system", "developer"), numbered))
    rest = numbered[len(leading) :]
    if not capabilities.late_system:
        _refuse_system(rest)
    if not leading:
        return rest
    role = leading[0][1].role
    if not (capabilities.developer_role if role == "developer" else capabilities.system_role):
        return [_with_prefix(rest, _joined_text(leading)), *rest[1:]]
    if capabilities.late_system or len(leading) == 1:
        return numbered
    return [(0, Message(role, _joined_text(leading))), *rest]


def _joined_text(messages: list[_Numbered]) -> str:
    return SYSTEM_JOINER.join(_text(message) for _, message in messages)


def _with_prefix(rest: list[_Numbered], text: str) -> _Numbered:
    """The first turn after the system turns, with their text prepended."""
    if not rest or rest[0][1].role != "user":
        raise Unsupported(
            "this model's chat template has no system role; a system message must be followed by a user message",
            param="messages[0].role",
        )
    index, user = rest[0]
    return index, replace(user, content=f"{text}{SYSTEM_JOINER}{_text(user)}")


def _refuse_system(rest: list[_Numbered]) -> None:
    for index, message in rest:
        if message.role == "system":
            raise Unsupported(
                "this model's chat template supports system messages only at the start", param=f"messages[{index}].role"
            )


def _text(message: Message) -> str:
    content = message.content or ""
    return content if isinstance(content, str) else PARTS_JOINER.join(content)


def _turns(index: int, message: Message, capabilities: Capabilities) -> Iterator[Turn]:
    """One turn, or two if the template cannot render text and calls in one."""
    if not message.tool_calls:
        yield _turn(message, _content(message, capabilities))
    elif not capabilities.tool_calls:
        yield _turn(message, _written_calls(index, message))
    else:
        yield from _calling_turns(index, message, capabilities)


def _turn(message: Message, content: Any) -> Turn:
    """The turn without its calls. Templates read reasoning under three names."""
    optional = {
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning_content,
        "reasoning": message.reasoning_content,
        "thinking": message.reasoning_content,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"role": message.role, "content": content} | given


def _content(message: Message, capabilities: Capabilities) -> str | list[Turn]:
    parts = (message.content,) if isinstance(message.content, str) else message.content or ()
    keeps_parts = not isinstance(message.content, str) and message.role == "user" and capabilities.content_parts
    if keeps_parts or not capabilities.content_strings:
        return [{"type": "text", "text": part} for part in parts]
    return _text(message)


def _calling_turns(index: int, message: Message, capabilities: Capabilities) -> Iterator[Turn]:
    calls = {"tool_calls": [_call(call, _param(index, i), capabilities) for i, call in enumerate(message.tool_calls)]}
    text, null_content = _text(message), capabilities.null_content
    if message.content is None or (not text and null_content is NullContent.NONE):
        yield with_null_content(_turn(message, None) | calls, null_content)
    elif text and not capabilities.text_beside_calls:
        yield _turn(message, _content(message, capabilities))
        yield with_null_content({"role": message.role, **calls}, null_content)
    else:
        yield _turn(message, _content(message, capabilities)) | calls


def _param(message_index: int, call_index: int) -> str:
    return f"messages[{message_index}].tool_calls[{call_index}].function.arguments"


def _call(call: ToolCall, param: str, capabilities: Capabilities) -> Turn:
    arguments: Any = parse_object(call.arguments, param) if capabilities.arguments_as_object else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _written_calls(index: int, message: Message) -> str:
    """Text and calls as one text, in the Hermes format, for a template without tool calls."""
    lines = [_text(message)] if _text(message) else []
    for call_index, call in enumerate(message.tool_calls):
        arguments = parse_object(call.arguments, _param(index, call_index))
        written = json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False)
        lines.append(f"<tool_call>\n{written}\n</tool_call>")
    return "\n".join(lines)
