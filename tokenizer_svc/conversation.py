"""A conversation to render, as the client sent it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in an earlier assistant turn; ``arguments`` is the client's JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. ``content`` is a string, the texts of its parts, or None if the client sent none."""

    role: str
    content: str | tuple[str, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning_content: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call; ``parameters`` is the client's JSON text."""

    name: str
    description: str | None = None
    parameters: str | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """All inputs of a prompt. ``template_kwargs`` is the client's JSON text, or empty.

    ``max_tokens`` is the maximum prompt length: the model's context minus one token for the output; None: no limit.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    template_kwargs: str = ""
    max_tokens: int | None = None

    @property
    def num_chars(self) -> int:
        """Number of Unicode characters that the client sent, for a limit before any work."""
        return (
            sum(map(_message_chars, self.messages))
            + sum(len(tool.name) + len(tool.description or "") + len(tool.parameters or "") for tool in self.tools)
            + len(self.template_kwargs)
        )


def _message_chars(message: Message) -> int:
    content = message.content or ""
    texts = (content,) if isinstance(content, str) else content
    calls = (text for call in message.tool_calls for text in (call.id, call.name, call.arguments))
    others = (message.name, message.tool_call_id, message.reasoning_content)
    return sum(len(text or "") for text in (*texts, *calls, *others))
