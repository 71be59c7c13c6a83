"""Capabilities of a chat template, found by ``probe``, and turns in the form that templates read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

Turn = dict[str, Any]
"""JSON values by the names that templates read: ``role``, ``content``, ``tool_calls`` and so on."""


class NullContent(Enum):
    """How to pass the missing content of an assistant turn that has only tool calls."""

    ABSENT = "absent"
    """No ``content`` field, as in transformers."""
    NONE = "none"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a template, and the forms that it needs."""

    system_role: bool
    late_system: bool
    """Supports several system turns, at any place."""
    developer_role: bool
    content_strings: bool
    content_parts: bool
    tools: bool
    bare_tools: bool
    """Supports tools without description and parameters."""
    tool_calls: bool
    text_beside_calls: bool
    """Supports text and tool calls in one turn."""
    null_content: NullContent
    tool_results: bool
    arguments_as_object: bool
    strict_alternation: bool
    writes_bos: bool
    reasoning: bool
    generation_opening: str
    """Text that ``add_generation_prompt`` adds; empty if it adds none."""
    answer_end: str
    """Text after the content of a final assistant turn."""
    call_end: str
    """Text after the arguments of a final tool call; empty without ``tool_calls``."""


def with_null_content(turn: Turn, form: NullContent) -> Turn:
    """A turn without content, in the given form."""
    if form is NullContent.ABSENT:
        return {name: value for name, value in turn.items() if name != "content"}
    return {**turn, "content": None if form is NullContent.NONE else ""}
