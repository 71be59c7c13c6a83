"""What the stages pass on: deltas of the output, and markers between the stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Content:
    """Next part of the content; before the parsers, next part of the output text."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Next part of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """Next part of a tool call. Only the first piece of a call has id and name."""

    index: int
    arguments: str = ""
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """A special token that a parser or a stop string needs to see. Never part of the chain's output.

    A ``hidden`` marker occurs in a stop string only: a reasoning parser drops it inside reasoning and passes it on
    elsewhere, and ``StopStage`` drops it.
    """

    spelling: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class ReasoningEnd:
    """The model has closed its reasoning. Never part of the chain's output."""


Delta: TypeAlias = Content | Reasoning | ToolCallPiece
Item: TypeAlias = Delta | Marker | ReasoningEnd


def coalesce(deltas: Iterable[Delta]) -> list[Delta]:
    """The same output in fewer deltas: adjacent deltas of the same kind are joined."""
    return [_join(list(group)) for _, group in groupby(deltas, key=_subject)]


def _subject(delta: Delta) -> tuple[type[Delta], int, str]:
    """The key by which deltas are joined. The first piece of a call is not joined with the one before it."""
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
