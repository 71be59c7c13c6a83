"""What a chat template can express, as ``probe`` finds out, and turns in the form that templates read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

Turn = dict[str, Any]
"""Plain JSON values by the names that templates know: ``role``, ``content``, ``tool_calls`` and so on."""


class NullContent(Enum):
    """How to hand over the missing content of an assistant turn that only calls tools."""

    ABSENT = "absent"
    """No ``content`` at all, as transformers does."""
    NONE = "none"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template can express, and in which form it wants it."""

    system_role: bool
    late_system: bool
    """System turns may stand anywhere, more than one of them."""
    developer_role: bool
    content_strings: bool
    content_parts: bool
    tools: bool
    bare_tools: bool
    """A tool needs neither a description nor parameters."""
    tool_calls: bool
    text_beside_calls: bool
    """One turn may hold text and calls."""
    null_content: NullContent
    tool_results: bool
    arguments_as_object: bool
    strict_alternation: bool
    writes_bos: bool
    reasoning: bool
    generation_opening: str
    """What ``add_generation_prompt`` adds; empty when that changes nothing."""
    answer_end: str
    """What follows the text of a final assistant turn."""
    call_end: str
    """What follows the arguments of a final tool call; empty without ``tool_calls``."""


def with_null_content(turn: Turn, form: NullContent) -> Turn:
    """A turn without text, its missing content in the given form."""
    if form is NullContent.ABSENT:
        return {name: value for name, value in turn.items() if name != "content"}
    return {**turn, "content": None if form is NullContent.NONE else ""}
