"""Turns of a conversation in the form that chat templates read."""

from __future__ import annotations

from typing import Any

from tokenizer_svc.capabilities import NullContent

Turn = dict[str, Any]
"""Plain JSON values by the names that templates know: ``role``, ``content``, ``tool_calls`` and so on."""


def with_null_content(turn: Turn, form: NullContent) -> Turn:
    """A turn without text, its missing content in the given form."""
    if form is NullContent.ABSENT:
        return {name: value for name, value in turn.items() if name != "content"}
    return {**turn, "content": None if form is NullContent.NONE else ""}
