"""Tool calls inside reasoning that the model never closes.

A call inside reasoning counts only if it is complete, its tool is declared, and reasoning is not closed after it. So
from the first such call on, everything is held until reasoning is closed (the held text is reasoning) or the output
ends (the calls count).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from typing_extensions import override

from detokenizer_svc.deltas import Content, Item, Reasoning, ReasoningEnd, ToolCallPiece
from detokenizer_svc.stage import FinishReason, ParserContext, Stage


class CallsInReasoning(Stage):
    """Reads reasoning with its own tool parser; passes content on to the next stage."""

    def __init__(self, parser: Callable[[ParserContext], Stage], context: ParserContext) -> None:
        self._parser = parser(replace(context, in_reasoning=True))
        self._closed = False
        self._raw: list[str] = []
        self._num_passed = 0
        """Number of reasoning characters passed on."""
        self._held: list[Item] = []
        """Items from the first call on."""

    @override
    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Reasoning):
            self._raw.append(item.text)
            return self._pass_on(self._parser.feed(Content(item.text)))
        if isinstance(item, ReasoningEnd):
            return self._release_as_reasoning()
        return (item,)

    @override
    def finish(self, reason: FinishReason) -> Iterable[Item]:
        return () if self._closed else [*self._held, *map(_as_reasoning, self._parser.finish(reason))]

    def _pass_on(self, items: Iterable[Item]) -> Iterable[Item]:
        passed: list[Item] = []
        for item in map(_as_reasoning, items):
            if self._held or isinstance(item, ToolCallPiece):
                self._held.append(item)
            else:
                passed.append(item)
                self._num_passed += len(item.text) if isinstance(item, Reasoning) else 0
        return passed

    def _release_as_reasoning(self) -> Iterable[Item]:
        self._closed = True
        rest = "".join(self._raw)[self._num_passed :]
        self._raw.clear()
        self._held.clear()
        return (Reasoning(rest),) if rest else ()


def _as_reasoning(item: Item) -> Item:
    return Reasoning(item.text) if isinstance(item, Content) else item
