"""Protobuf messages of tokenizer.proto to and from the service's own types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from protos.v1 import common_pb2
from protos.v1 import tokenizer_pb2 as pb
from svclib.errors import InvalidRequest
from tokenizer_svc.capabilities import Capabilities
from tokenizer_svc.conversation import Conversation, Message, Tool, ToolCall
from tokenizer_svc.reasoning import ReasoningState

MAX_INPUTS: Final = 16_384
"""Maximum inputs of one call."""

REASONING_STATES: Final = {
    ReasoningState.UNDECIDED: common_pb2.REASONING_STATE_UNDECIDED,
    ReasoningState.OPEN: common_pb2.REASONING_STATE_OPEN,
    ReasoningState.CLOSED: common_pb2.REASONING_STATE_CLOSED,
}

ResultT = TypeVar("ResultT")


def read_conversation(request: pb.RenderRequest) -> Conversation:
    """Raises ``InvalidRequest`` for a content part without text."""
    return Conversation(
        messages=tuple(_message(message, f"messages[{i}]") for i, message in enumerate(request.messages)),
        tools=tuple(map(_tool, request.tools)),
        add_generation_prompt=_optional(request, "add_generation_prompt", bool),
        continue_final_message=request.continue_final_message,
        template_kwargs=request.chat_template_kwargs_json,
        max_tokens=_optional(request, "max_prompt_tokens", int),
    )


def read_inputs(request: pb.RenderRequest | pb.TokenizeRequest) -> list[str | bytes]:
    """Raises ``InvalidRequest`` for too many inputs, and for one without text or bytes."""
    if len(request.inputs) > MAX_INPUTS:
        raise InvalidRequest(f"inputs must have at most {MAX_INPUTS} items", param="inputs")
    return [_input(item, f"inputs[{index}]") for index, item in enumerate(request.inputs)]


def to_capabilities(capabilities: Capabilities | None) -> pb.TemplateCapabilities | None:
    """The capabilities that have a field in the contract; None without a chat template."""
    if capabilities is None:
        return None
    names = pb.TemplateCapabilities.DESCRIPTOR.fields_by_name
    return pb.TemplateCapabilities(**{name: getattr(capabilities, name) for name in names})


def _message(message: pb.ChatMessage, param: str) -> Message:
    return Message(
        role=message.role,
        content=_content(message, param),
        name=_optional(message, "name", str),
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls),
        tool_call_id=_optional(message, "tool_call_id", str),
        reasoning_content=_optional(message, "reasoning_content", str),
    )


def _content(message: pb.ChatMessage, param: str) -> str | tuple[str, ...] | None:
    match message.WhichOneof("content"):
        case "text":
            return message.text
        case "parts":
            return tuple(_part(part, f"{param}.content[{i}]") for i, part in enumerate(message.parts.parts))
        case None:
            return None


def _part(part: pb.ContentPart, param: str) -> str:
    if part.WhichOneof("part") != "text":
        raise InvalidRequest(f"{param} must have text", param=f"{param}.text")
    return part.text


def _tool(tool: common_pb2.ToolDefinition) -> Tool:
    return Tool(
        name=tool.name,
        description=_optional(tool, "description", str),
        parameters=_optional(tool, "parameters_json", str),
        strict=_optional(tool, "strict", bool),
    )


def _optional(message: Any, field: str, kind: Callable[[Any], ResultT]) -> ResultT | None:
    """An optional field of a protobuf message; None if it is absent."""
    return kind(getattr(message, field)) if message.HasField(field) else None


def _input(item: pb.TokenizeInput, param: str) -> str | bytes:
    match item.WhichOneof("input"):
        case "text":
            return item.text
        case "raw":
            return item.raw
        case None:
            raise InvalidRequest(f"{param} must be a text or raw bytes", param=param)
