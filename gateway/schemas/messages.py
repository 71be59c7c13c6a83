"""The conversation: ``messages``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, Tag

from gateway import chat
from gateway.limits import MAX_NAME_CHARS, MAX_PARTS, MAX_TOOL_CALLS
from gateway.schemas.base import TAG, Schema
from svclib.errors import InvalidRequest, Unsupported

_UNSUPPORTED: Final = ("refusal", "audio", "function_call")
"""Fields of an assistant's message that change the prompt and that no template here can express."""


_MEDIA: Final = frozenset(
    {"image_url", "input_image", "image", "input_audio", "audio_url", "audio", "video_url", "video", "file", "refusal"}
)


class Part(Schema):
    type: str
    text: str | None = None


def _kind(content: Any) -> str | None:
    if isinstance(content, list):
        return f"{TAG}parts"
    return f"{TAG}text" if isinstance(content, str) else None


Content = Annotated[
    Annotated[str, Tag(f"{TAG}text")]
    | Annotated[list[Part], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True), Tag(f"{TAG}parts")],
    Discriminator(
        _kind,
        custom_error_type="content_type",
        custom_error_message="must be a string or a list of parts",
    ),
]


class FunctionCall(Schema):
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    arguments: str


class ToolCall(Schema):
    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Schema):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOL_CALLS, fail_fast=True)] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    annotations: Any = None
    """Sent back by clients that keep the whole answer; says nothing to a model."""

    def unknown(self, prefix: str = "") -> Iterator[str]:
        yield from super().unknown(prefix)
        for number, part in enumerate(self.content if isinstance(self.content, list) else ()):
            yield from part.unknown(f"{prefix}content[{number}].")
        for number, call in enumerate(self.tool_calls or ()):
            yield from call.unknown(f"{prefix}tool_calls[{number}].")
            yield from call.function.unknown(f"{prefix}tool_calls[{number}].function.")


def read_message(message: Message, param: str) -> chat.Message:
    """Check a turn against its role. Raises ``InvalidRequest`` for what is between its fields."""
    _check_extras(message, param)
    _check_role(message, param)
    if message.content is None and not (message.role == "assistant" and message.tool_calls):
        raise InvalidRequest(f"{param}.content is missing", param=f"{param}.content")
    if message.role == "tool" and message.tool_call_id is None:
        raise InvalidRequest(f"{param}.tool_call_id must name the call it answers", param=f"{param}.tool_call_id")
    return chat.Message(
        role=message.role,
        content=_read_content(message.content, f"{param}.content"),
        name=message.name,
        tool_calls=tuple(
            chat.ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
        ),
        tool_call_id=message.tool_call_id,
        reasoning=_read_reasoning(message, param),
    )


def _check_extras(message: Message, param: str) -> None:
    extras = message.__pydantic_extra__ or {}
    for name in _UNSUPPORTED:
        if extras.get(name) is not None:
            raise Unsupported(f"{param}.{name} is not supported", param=f"{param}.{name}")


def _check_role(message: Message, param: str) -> None:
    for name, role, value in (
        ("tool_calls", "assistant", message.tool_calls),
        ("reasoning_content", "assistant", message.reasoning_content),
        ("reasoning", "assistant", message.reasoning),
        ("tool_call_id", "tool", message.tool_call_id),
    ):
        if value and message.role != role:
            raise InvalidRequest(f"{param}.{name} belongs to the role {role}", param=f"{param}.{name}")


def _read_content(content: str | list[Part] | None, param: str) -> str | tuple[str, ...] | None:
    if not isinstance(content, list):
        return content
    return tuple(_read_part(part, f"{param}[{number}]") for number, part in enumerate(content))


def _read_part(part: Part, param: str) -> str:
    if part.type in _MEDIA:
        raise Unsupported(f"{param} is not text, and this model reads only text", param=param)
    if part.type != "text":
        raise InvalidRequest(f"{param}.type must be `text`", param=f"{param}.type")
    if part.text is None:
        raise InvalidRequest(f"{param}.text is missing", param=f"{param}.text")
    return part.text


def _read_reasoning(message: Message, param: str) -> str | None:
    given = {text for text in (message.reasoning_content, message.reasoning) if text is not None}
    if len(given) > 1:
        raise InvalidRequest(
            f"{param}.reasoning and {param}.reasoning_content are two names of one thing and differ",
            param=f"{param}.reasoning",
        )
    return given.pop() if given else None
