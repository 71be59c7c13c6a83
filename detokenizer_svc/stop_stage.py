"""Stop strings: matched in the text after reasoning, including tool calls, as the model wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from typing_extensions import override

from detokenizer_svc.deltas import Content, Item, Marker
from detokenizer_svc.positions import Span
from detokenizer_svc.stage import FinishReason, Stage
from detokenizer_svc.stop import StopMatcher

_PLACEHOLDER: Final = re.compile("([\ud800-\udfff])")


class StopStage(Stage):
    """A reasoning parser, if there is one, with stop strings after it.

    It passes on the text before the first stop string, and nothing from there on. ``special`` are the special tokens
    that occur in stop strings. A stop string that ends within the first ``min_characters()`` characters is ignored.

    Positions are counted in the text that is fed. So the ``Content`` and ``Marker`` that the parser returns from one
    ``feed`` must be the end of what it has read, which holds for text after reasoning.
    """

    def __init__(
        self, inner: Stage | None, stop: Sequence[str], special: Collection[Marker], min_characters: Callable[[], int]
    ) -> None:
        self._inner = inner
        self._matcher = StopMatcher(stop, [marker.spelling for marker in special])
        self._special = {self._matcher.placeholders[marker.spelling]: marker for marker in special}
        self._min_characters = min_characters
        self._num_read = 0
        self.markers = inner.markers if inner else frozenset()

    @property
    def matched(self) -> str | None:
        """The stop string that matched."""
        return self._matcher.matched

    @property
    def num_characters(self) -> int:
        """The end of the matched stop string, in characters of the text."""
        return self._matcher.num_characters

    @property
    @override
    def reasoning_spans(self) -> Sequence[Span]:
        return self._inner.reasoning_spans if self._inner else ()

    @override
    def feed(self, item: Item) -> Iterable[Item]:
        if self.matched is not None:
            return ()
        self._num_read += _length(item)
        return self._search(self._inner.feed(item) if self._inner else (item,))

    @override
    def finish(self, reason: FinishReason) -> Iterable[Item]:
        if self.matched is not None:
            return ()
        out = self._search(self._inner.finish(reason) if self._inner else ())
        return out if self.matched is not None else [*out, *self._items(self._matcher.interrupt())]

    def _search(self, items: Iterable[Item]) -> list[Item]:
        items = list(items)
        self._matcher.num_characters = self._num_read - sum(map(_length, items))
        out: list[Item] = []
        for item in items:
            out += self._read(item)
            if self.matched is not None:
                break
        return out

    def _read(self, item: Item) -> list[Item]:
        if isinstance(item, Content):
            return self._items(self._matcher.feed(item.text, min_characters=self._min_characters()))
        if isinstance(item, Marker) and item.spelling in self._matcher.placeholders:
            return self._items(self._matcher.feed_special(item.spelling, min_characters=self._min_characters()))
        return [*self._items(self._matcher.interrupt(_length(item))), item]

    def _items(self, text: str) -> list[Item]:
        """The matcher's text as items. Hidden markers are dropped."""
        if not self._special:
            return [Content(text)] if text else []
        items = [self._special.get(part) or Content(part) for part in _PLACEHOLDER.split(text) if part]
        return [item for item in items if not (isinstance(item, Marker) and item.hidden)]


def _length(item: Item) -> int:
    """Length in characters."""
    if isinstance(item, Marker):
        return len(item.spelling)
    return len(item.text) if isinstance(item, Content) else 0
