"""The field ``messages``: the turns of a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from gateway.api.chat.parts import Content, read_content, with_refusal
from gateway.api.chat.tool_results import check_results
from gateway.api.schemas.base import Schema
from gateway.generation import request as neutral
from gateway.policy.limits import MAX_NAME_CHARS, MAX_TOOL_CALLS
from svclib.errors import InvalidRequest, Unsupported

_UNSUPPORTED: Final = ("audio", "function_call", "images", "partial", "prefix", "tools")
"""Fields that would change the prompt and are not supported; null, false and ``[]`` are accepted."""


class FunctionCall(Schema):
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    arguments: str | None = None
    parsed_arguments: Any = None
    """Added by ``parse`` of the official client."""


class ToolCall(Schema):
    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    type: Literal["function"] | None = None
    function: FunctionCall
    index: Any = None
    """Left over from stream chunks."""
    cache_control: Any = None
    provider_specific_fields: Any = None


class Message(Schema):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOL_CALLS, fail_fast=True)] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None

    # Sent back by clients that keep the whole answer. They do not change the prompt, or repeat the fields above.
    annotations: Any = None
    cache_control: Any = None
    id: Any = None
    parsed: Any = None
    provider_specific_fields: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None

    def unknown(self, prefix: str = "") -> Iterator[str]:
        yield from (name for name in super().unknown(prefix) if name.removeprefix(prefix) not in _UNSUPPORTED)
        for number, part in enumerate(self.content if isinstance(self.content, list) else ()):
            yield from part.unknown(f"{prefix}content[{number}].")
        for number, call in enumerate(self.tool_calls or ()):
            yield from call.unknown(f"{prefix}tool_calls[{number}].")
            yield from call.function.unknown(f"{prefix}tool_calls[{number}].function.")


def read_messages(messages: Sequence[Message]) -> tuple[neutral.Message, ...]:
    """The turns of a conversation. Raises ``InvalidRequest`` for a fault in a turn or between turns."""
    read = tuple(_read_message(message, f"messages[{number}]") for number, message in enumerate(messages))
    check_results(read)
    return read


def _read_message(message: Message, param: str) -> neutral.Message:
    _check_extras(message, param)
    _check_role(message, param)
    if message.content is None and message.role != "assistant":
        raise InvalidRequest(f"{param}.content is missing", param=f"{param}.content")
    if message.role == "tool" and message.tool_call_id is None:
        raise InvalidRequest(
            f"{param}.tool_call_id must be the id of the call that the result is for", param=f"{param}.tool_call_id"
        )
    content = read_content(message.content, message.role, f"{param}.content")
    reasoning = _read_reasoning(message, param)
    return neutral.Message(
        role=message.role,
        content=with_refusal(content.text, message.refusal),
        name=message.name,
        tool_calls=tuple(_read_call(call) for call in message.tool_calls or ()),
        tool_call_id=message.tool_call_id,
        reasoning=content.reasoning if reasoning is None else reasoning,
    )


def _read_call(call: ToolCall) -> neutral.ToolCall:
    """Some servers send empty text for a call without arguments."""
    arguments = call.function.arguments or ""
    return neutral.ToolCall(call.id, call.function.name, arguments if arguments.strip() else "{}")


def _check_extras(message: Message, param: str) -> None:
    extras = message.__pydantic_extra__ or {}
    for name in _UNSUPPORTED:
        if extras.get(name) not in (None, False, []):
            raise Unsupported(f"{param}.{name} is not supported", param=f"{param}.{name}")


def _check_role(message: Message, param: str) -> None:
    for name, role, value in (
        ("tool_calls", "assistant", message.tool_calls),
        ("reasoning_content", "assistant", message.reasoning_content),
        ("reasoning", "assistant", message.reasoning),
        ("refusal", "assistant", message.refusal),
        ("tool_call_id", "tool", message.tool_call_id),
    ):
        if value and message.role != role:
            raise InvalidRequest(f"{param}.{name} is only for the role {role}", param=f"{param}.{name}")


def _read_reasoning(message: Message, param: str) -> str | None:
    given = {text for text in (message.reasoning_content, message.reasoning) if text is not None}
    if len(given) > 1:
        raise InvalidRequest(
            f"{param}.reasoning and {param}.reasoning_content are aliases and must be equal",
            param=f"{param}.reasoning",
        )
    return given.pop() if given else None
