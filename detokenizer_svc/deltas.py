"""What the steps of the chain hand on: pieces of the output, and signs between the steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Content:
    """More of the answer; before the parsers, more of the output."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """More of a tool call. Only the first piece of a call has its id and name."""

    index: int
    arguments: str = ""
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """A special token that a parser or a stop string asks for. Never leaves the chain as such.

    One that is ``hidden`` stands in a stop string only: inside thinking a reasoning parser drops it, elsewhere it hands
    it on, and no further stage sees it.
    """

    spelling: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class ThinkingEnd:
    """The model has closed its thinking. Never leaves the chain."""


Delta: TypeAlias = Content | Reasoning | ToolCallPiece
Item: TypeAlias = Delta | Marker | ThinkingEnd


def coalesce(deltas: Iterable[Delta]) -> list[Delta]:
    """The same output in fewer pieces: neighbours that say more of the same thing are joined."""
    return [_join(list(group)) for _, group in groupby(deltas, key=_subject)]


def _subject(delta: Delta) -> tuple[type[Delta], int, str]:
    """What a delta says more of. The first piece of a call stands alone."""
    if isinstance(delta, ToolCallPiece):
        return ToolCallPiece, delta.index, delta.id
    return type(delta), 0, ""


def _join(deltas: list[Delta]) -> Delta:
    first = deltas[0]
    if len(deltas) == 1:
        return first
    if isinstance(first, ToolCallPiece):
        return replace(first, arguments="".join(d.arguments for d in deltas if isinstance(d, ToolCallPiece)))
    return type(first)("".join(d.text for d in deltas if not isinstance(d, ToolCallPiece)))
