"""Calls that a model makes without closing its thinking first.

A call inside the thinking counts only if it is whole, names a declared tool, and the thinking is not closed after it.
So from the first such call on everything is held until the thinking is closed (all of it was thinking) or the output
ends (the calls count).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from typing_extensions import override

from detokenizer_svc.deltas import Content, Item, Reasoning, ThinkingEnd, ToolCallPiece
from detokenizer_svc.stage import FinishReason, ParserContext, Stage


class CallsInThinking(Stage):
    """Reads the thinking with a tool parser of its own; leaves the answer to the stage after it."""

    def __init__(self, parser: Callable[[ParserContext], Stage], context: ParserContext) -> None:
        self._parser = parser(replace(context, in_thinking=True))
        self._over = False
        self._raw: list[str] = []
        self._num_given = 0
        """How much of the thinking has been given, in characters."""
        self._held: list[Item] = []
        """From the first call on."""

    @override
    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Reasoning):
            self._raw.append(item.text)
            return self._give(self._parser.feed(Content(item.text)))
        if isinstance(item, ThinkingEnd):
            return self._all_was_thinking()
        return (item,)

    @override
    def finish(self, reason: FinishReason) -> Iterable[Item]:
        return () if self._over else [*self._held, *map(_as_thinking, self._parser.finish(reason))]

    def _give(self, items: Iterable[Item]) -> Iterable[Item]:
        given: list[Item] = []
        for item in map(_as_thinking, items):
            if self._held or isinstance(item, ToolCallPiece):
                self._held.append(item)
            else:
                given.append(item)
                self._num_given += len(item.text) if isinstance(item, Reasoning) else 0
        return given

    def _all_was_thinking(self) -> Iterable[Item]:
        self._over = True
        rest = "".join(self._raw)[self._num_given :]
        self._raw.clear()
        self._held.clear()
        return (Reasoning(rest),) if rest else ()


def _as_thinking(item: Item) -> Item:
    return Reasoning(item.text) if isinstance(item, Content) else item
