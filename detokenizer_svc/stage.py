"""The steps that turn text into deltas, and the chain of them. To add one, see docs/adding-a-parser.md."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal

from typing_extensions import override

from detokenizer_svc.deltas import Content, Item, Marker
from detokenizer_svc.positions import Span

FinishReason = Literal["stop", "length"]


class ReasoningState(Enum):
    """Where the output starts, seen from the thinking."""

    UNDECIDED = auto()
    """An opening tag at the start of the output begins thinking."""
    OPEN = auto()
    """The prompt opened the thinking: the output starts inside it."""
    CLOSED = auto()
    """The thinking is over, or there is none: the output is content."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared function. ``parameters_json`` is the text of a JSON Schema; empty: not given."""

    name: str
    parameters_json: str = ""


def new_call_id() -> str:
    """A fresh id for a tool call."""
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class ParserContext:
    """What a parser is told about its choice."""

    reasoning_state: ReasoningState = ReasoningState.CLOSED
    tools: tuple[Tool, ...] = ()
    in_thinking: bool = False
    """What is read is thinking: a call counts only if it is whole and names a declared tool."""
    new_call_id: Callable[[], str] = field(default=new_call_id)


class Stage(ABC):
    """One step of the chain, with the state of one choice.

    A stage takes text as ``Content`` and gives items of any kind. It holds back only what it cannot judge yet, never
    raises on what a model says, and gives everything back in ``finish``; what the text is cut into makes no difference
    to the joined output.
    """

    markers: frozenset[str] = frozenset()
    """Spellings that the stage wants to see although they are special tokens, which otherwise give no text."""

    num_failures: int = 0
    """Pieces of output that were almost in the format, and so became content."""

    @property
    def thinking(self) -> Sequence[Span]:
        """Where the model was thinking, in characters of the text that has been fed."""
        return ()

    @abstractmethod
    def feed(self, item: Item) -> Iterable[Item]:
        """What is certain after one more item."""

    @abstractmethod
    def finish(self, reason: FinishReason) -> Iterable[Item]:
        """The rest, at the end of the output."""


class TextStage(Stage):
    """A stage whose format is spelled out: it reads its markers as text and leaves the other items alone."""

    @override
    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Content):
            return self.read(item.text)
        if isinstance(item, Marker) and item.spelling in self.markers:
            return self.read(item.spelling)
        return (item,)

    @abstractmethod
    def read(self, text: str) -> Iterable[Item]:
        """What is certain after more text."""


class Chain:
    """Stages one after the other."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages

    @property
    def markers(self) -> frozenset[str]:
        """Special tokens that any of the stages wants to see."""
        return frozenset().union(*(stage.markers for stage in self.stages))

    @property
    def thinking(self) -> list[Span]:
        """Where the model was thinking, in characters."""
        return [span for stage in self.stages for span in stage.thinking]

    @property
    def num_failures(self) -> int:
        """Over all stages."""
        return sum(stage.num_failures for stage in self.stages)

    def feed(self, items: list[Item]) -> list[Item]:
        """Lead items through all stages."""
        for stage in self.stages:
            items = _through(stage, items)
        return items

    def finish(self, items: list[Item], reason: FinishReason) -> list[Item]:
        """Lead the last items through all stages, and what each stage gives back at its end through those after it."""
        for stage in self.stages:
            items = [*_through(stage, items), *stage.finish(reason)]
        return items


def _through(stage: Stage, items: Iterable[Item]) -> list[Item]:
    return [given for item in items for given in stage.feed(item)]
