"""Reasoning between ``<think>`` and ``</think>`` at the start of the output (DeepSeek-R1, Qwen3 and many others).

The first closing tag ends reasoning; later tags are content. An opening tag that repeats the one in the prompt is
dropped. White space inside next to the tags, and after the closing tag, is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from typing_extensions import override

from detokenizer_svc.deltas import Content, Item, Marker, Reasoning, ReasoningEnd
from detokenizer_svc.positions import Span
from detokenizer_svc.stage import FinishReason, ParserContext, ReasoningState, Stage
from detokenizer_svc.tags import WHITE_SPACE, TagSearch

OPENING: Final = "<think>"
CLOSING: Final = "</think>"


class Think(Stage):
    """States: at the start, in reasoning, after the closing tag, in content."""

    markers = frozenset({OPENING, CLOSING})

    def __init__(self, context: ParserContext) -> None:
        self._inside = context.reasoning_state is ReasoningState.OPEN
        self._spans = [Span(0)] if self._inside else []
        self._num_read = 0
        self._space: list[str] = []
        """At the start: white space before a possible tag."""
        self._partial_tag = ""
        """At the start: text that may become an opening tag."""
        self._search = TagSearch(CLOSING)
        closed = context.reasoning_state is ReasoningState.CLOSED
        self._state: Callable[[str, list[Item]], str] | None = None if closed else self._at_start
        """Reads text, appends unambiguous items to the list, returns the text not read. None: in content."""

    @property
    @override
    def reasoning_spans(self) -> Sequence[Span]:
        return self._spans

    @override
    def feed(self, item: Item) -> Iterable[Item]:
        if self._state is None or not isinstance(item, Content | Marker):
            return (item,)
        out: list[Item] = []
        if isinstance(item, Content):
            self._read(item.text, out)
        elif item.hidden and self._inside:
            self._num_read += len(item.spelling)
        elif self._inside or item.spelling in self.markers:
            self._read(item.spelling, out)
        else:
            out += (*self._release_start(), item)
        return out

    @override
    def finish(self, reason: FinishReason) -> Iterable[Item]:
        if self._state == self._at_start:
            return _item(Reasoning, self._partial_tag) if self._inside else self._release_start()
        return _item(Reasoning, self._search.finish())

    def _read(self, text: str, out: list[Item]) -> None:
        self._num_read += len(text)
        while text and self._state is not None:
            text = self._state(text, out)
        out += _item(Content, text)

    def _at_start(self, text: str, out: list[Item]) -> str:
        text = self._partial_tag + text
        solid = text.lstrip(WHITE_SPACE)
        self._space.append(text[: len(text) - len(solid)])
        self._partial_tag = solid if OPENING.startswith(solid) and solid != OPENING else ""
        if self._partial_tag or not solid:
            return ""
        if solid.startswith(OPENING):
            solid = solid[len(OPENING) :]
            if not self._inside:
                self._spans.append(Span(self._num_read - len(solid)))
        elif not self._inside:
            out += self._release_start()
            return solid
        self._begin_reasoning()
        return solid

    def _begin_reasoning(self) -> None:
        self._inside = True
        self._search.skip_space()
        self._state = self._in_reasoning

    def _release_start(self) -> Iterable[Item]:
        """The output starts with content: what was held is content."""
        self._state = None
        held = "".join(self._space) + self._partial_tag
        return _item(Content, held)

    def _in_reasoning(self, text: str, out: list[Item]) -> str:
        found = self._search.feed(text)
        out += _item(Reasoning, found.text)
        if found.tag:
            self._spans[-1].end = self._num_read - len(text) + found.end - len(CLOSING)
            self._inside = False
            self._space.clear()
            self._state = self._after_closing
            out.append(ReasoningEnd())
        return text[found.end :]

    def _after_closing(self, text: str, out: list[Item]) -> str:
        if solid := text.lstrip(WHITE_SPACE):
            self._state = None
            out.append(Content(solid))
        return ""


def _item(kind: type[Content] | type[Reasoning], text: str) -> Iterable[Item]:
    return (kind(text),) if text else ()
