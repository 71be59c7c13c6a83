"""The stages that turn text into deltas, and the chain of stages. See docs/adding-a-parser.md to add one."""

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
    """Whether the output starts inside reasoning."""

    UNDECIDED = auto()
    """An opening tag at the start of the output begins reasoning."""
    OPEN = auto()
    """The prompt ends inside reasoning: the output starts with reasoning."""
    CLOSED = auto()
    """The prompt closed the reasoning, or there is none: the output starts with content."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared function. ``parameters_json`` is the text of a JSON Schema; empty: not given."""

    name: str
    parameters_json: str = ""


def new_call_id() -> str:
    """A new random id for a tool call."""
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class ParserContext:
    """What a parser knows about its choice."""

    reasoning_state: ReasoningState = ReasoningState.CLOSED
    tools: tuple[Tool, ...] = ()
    in_reasoning: bool = False
    """The parser reads reasoning: only complete calls of declared tools count."""
    new_call_id: Callable[[], str] = field(default=new_call_id)


class Stage(ABC):
    """One stage of the chain, with the state of one choice.

    A stage reads text as ``Content`` and returns items of any kind. It holds back only text that is still ambiguous,
    never raises on model output, and returns everything held in ``finish``. The joined output does not depend on how
    the text is cut.
    """

    markers: frozenset[str] = frozenset()
    """Spellings of the special tokens that the stage receives as ``Marker``; other special tokens have no text."""

    num_failures: int = 0
    """Number of malformed calls, which became content."""

    @property
    def reasoning_spans(self) -> Sequence[Span]:
        """Where the reasoning is, in characters of the text that has been fed."""
        return ()

    @abstractmethod
    def feed(self, item: Item) -> Iterable[Item]:
        """The items that are unambiguous after one more item."""

    @abstractmethod
    def finish(self, reason: FinishReason) -> Iterable[Item]:
        """Everything held back, at the end of the output."""


class TextStage(Stage):
    """A stage that reads its markers as text, and passes other items on unchanged."""

    @override
    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Content):
            return self.read(item.text)
        if isinstance(item, Marker) and item.spelling in self.markers:
            return self.read(item.spelling)
        return (item,)

    @abstractmethod
    def read(self, text: str) -> Iterable[Item]:
        """The items that are unambiguous after more text."""


class Chain:
    """Stages in sequence."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages

    @property
    def markers(self) -> frozenset[str]:
        """Markers of all stages."""
        return frozenset().union(*(stage.markers for stage in self.stages))

    @property
    def reasoning_spans(self) -> list[Span]:
        """Where the reasoning is, in characters."""
        return [span for stage in self.stages for span in stage.reasoning_spans]

    @property
    def num_failures(self) -> int:
        """Sum over all stages."""
        return sum(stage.num_failures for stage in self.stages)

    def feed(self, items: list[Item]) -> list[Item]:
        """Pass items through all stages."""
        for stage in self.stages:
            items = _through(stage, items)
        return items

    def finish(self, items: list[Item], reason: FinishReason) -> list[Item]:
        """Pass the last items through all stages, and what each stage held back through the stages after it."""
        for stage in self.stages:
            items = [*_through(stage, items), *stage.finish(reason)]
        return items


def _through(stage: Stage, items: Iterable[Item]) -> list[Item]:
    return [given for item in items for given in stage.feed(item)]
