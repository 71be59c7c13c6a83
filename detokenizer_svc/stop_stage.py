"""Stop strings in the answer: sought in what a reasoning parser leaves, as the model wrote it, calls included."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from typing_extensions import override

from detokenizer_svc.deltas import Content, Item, Marker
from detokenizer_svc.positions import Span
from detokenizer_svc.stage import FinishReason, Stage
from detokenizer_svc.stop import StopMatcher

_SIGN: Final = re.compile("([\ud800-\udfff])")


class StopStage(Stage):
    """A reasoning parser, if there is one, and the stop strings after it.

    It hands on what stands before a stop string; from there on, nothing. ``special`` are the special tokens
    that may be part of one. ``armed_from`` tells how many characters of the output complete none.

    Places are counted in the text that is fed. So what the parser hands on as ``Content`` and ``Marker`` while it
    reads something must be the end of what it has read, which is so for text that is no longer thinking.
    """

    def __init__(
        self, inner: Stage | None, stop: Sequence[str], special: Collection[Marker], armed_from: Callable[[], int]
    ) -> None:
        self._inner = inner
        self._matcher = StopMatcher(stop, [marker.spelling for marker in special])
        self._special = {self._matcher.signs[marker.spelling]: marker for marker in special}
        self._armed_from = armed_from
        self._num_read = 0
        self.markers = inner.markers if inner else frozenset()

    @property
    def matched(self) -> str | None:
        """The stop string that was found."""
        return self._matcher.matched

    @property
    def num_characters(self) -> int:
        """Where the stop string that was found ends, in characters of the text."""
        return self._matcher.num_characters

    @property
    @override
    def thinking(self) -> Sequence[Span]:
        return self._inner.thinking if self._inner else ()

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
            return self._items(self._matcher.feed(item.text, armed_from=self._armed_from()))
        if isinstance(item, Marker) and item.spelling in self._matcher.signs:
            return self._items(self._matcher.feed_special(item.spelling, armed_from=self._armed_from()))
        return [*self._items(self._matcher.interrupt(_length(item))), item]

    def _items(self, text: str) -> list[Item]:
        """What the matcher hands on. Hidden special tokens end here."""
        if not self._special:
            return [Content(text)] if text else []
        items = [self._special.get(part) or Content(part) for part in _SIGN.split(text) if part]
        return [item for item in items if not (isinstance(item, Marker) and item.hidden)]


def _length(item: Item) -> int:
    """Characters of the output."""
    if isinstance(item, Marker):
        return len(item.spelling)
    return len(item.text) if isinstance(item, Content) else 0
