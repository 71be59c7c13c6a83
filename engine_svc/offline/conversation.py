"""From messages as dicts, as in the OpenAI API, to a conversation of the tokenizer service."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any, Final

from tokenizer_svc.conversation import Conversation, Message, Tool, ToolCall

_FIELDS: Final = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning"})
_TOOL_FIELDS: Final = frozenset({"name", "description", "parameters", "strict"})


def read_conversation(
    messages: SequenceOf[Mapping[str, Any]],
    *,
    tools: SequenceOf[Mapping[str, Any]],
    add_generation_prompt: bool,
    continue_final_message: bool,
    template_kwargs: Mapping[str, Any],
) -> Conversation:
    """Raises ``ValueError`` naming a field of the wrong type; the template's own limits are checked at rendering."""
    return Conversation(
        messages=tuple(_message(message, f"messages[{number}]") for number, message in enumerate(messages)),
        tools=tuple(_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools)),
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        template_kwargs=_json(template_kwargs, "chat_template_kwargs") if template_kwargs else "",
    )


def _message(message: Mapping[str, Any], param: str) -> Message:
    _check_fields(message, _FIELDS, param)
    reasoning = message.get("reasoning") if message.get("reasoning_content") is None else message["reasoning_content"]
    return Message(
        role=_text(message.get("role"), f"{param}.role"),
        content=_content(message.get("content"), f"{param}.content"),
        name=_optional_text(message.get("name"), f"{param}.name"),
        tool_calls=tuple(_calls(message.get("tool_calls") or (), f"{param}.tool_calls")),
        tool_call_id=_optional_text(message.get("tool_call_id"), f"{param}.tool_call_id"),
        reasoning_content=_optional_text(reasoning, f"{param}.reasoning_content"),
    )


def _content(content: Any, param: str) -> str | tuple[str, ...] | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        raise ValueError(f"{param} must be a string or a list of text parts, not {content!r}")
    return tuple(_part(part, f"{param}[{number}]") for number, part in enumerate(content))


def _part(part: Any, param: str) -> str:
    if not isinstance(part, Mapping) or part.get("type") != "text":
        raise ValueError(f"{param} must be a part of type text, not {part!r}")
    return _text(part.get("text"), f"{param}.text")


def _calls(calls: SequenceOf[Mapping[str, Any]], param: str) -> Iterator[ToolCall]:
    for number, call in enumerate(calls):
        function = call.get("function", call)
        name = _text(function.get("name"), f"{param}[{number}].function.name")
        yield ToolCall(str(call.get("id", "")), name, _arguments(function.get("arguments"), f"{param}[{number}]"))


def _arguments(arguments: Any, param: str) -> str:
    """A JSON string, or an object as in transformers. A call without arguments may have an empty string."""
    if isinstance(arguments, Mapping):
        return _json(arguments, f"{param}.function.arguments")
    written = _text(arguments or "", f"{param}.function.arguments")
    return written if written.strip() else "{}"


def _tool(tool: Mapping[str, Any], param: str) -> Tool:
    function = tool.get("function", tool) if tool.get("type", "function") == "function" else tool
    _check_fields({name: value for name, value in function.items() if name != "type"}, _TOOL_FIELDS, param)
    parameters = function.get("parameters")
    return Tool(
        name=_text(function.get("name"), f"{param}.function.name"),
        description=_optional_text(function.get("description"), f"{param}.function.description"),
        parameters=None if parameters is None else _json(parameters, f"{param}.function.parameters"),
        strict=function.get("strict"),
    )


def _check_fields(given: Mapping[str, Any], known: frozenset[str], param: str) -> None:
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"{param}: unknown field: {', '.join(unknown)}")


def _json(value: Any, param: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{param} must be JSON: {error}") from None


def _text(value: Any, param: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{param} must be a string, not {value!r}")
    return value


def _optional_text(value: Any, param: str) -> str | None:
    return None if value is None else _text(value, param)
