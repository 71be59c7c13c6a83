"""Tags in text that comes in pieces. White space next to a tag belongs to it: it is dropped, once."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

WHITE_SPACE: Final = " \t\r\n"

_SPACE: Final = re.compile(f"[{WHITE_SPACE}]*")


class Found(NamedTuple):
    """One step of a search: the ``text`` that stands before any tag, then the first ``tag`` with the white ``space``
    before it. ``end`` is where the search stopped: after the tag, or without one at the end of what was given."""

    text: str
    space: str
    tag: str | None
    end: int


@lru_cache(maxsize=256)
def _compile(tags: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str]]:
    """A pattern for the tags, and their true prefixes."""
    prefixes = frozenset(tag[:length] for tag in tags for length in range(1, len(tag)))
    return re.compile("|".join(map(re.escape, tags))), prefixes


class TagSearch:
    """Looks for the first of some tags. Holds back white space, and what can still become a tag."""

    def __init__(self, *tags: str) -> None:
        self._pattern, self._prefixes = _compile(tags)
        self._first = frozenset(tag[0] for tag in tags)
        self._longest_prefix = max(map(len, tags)) - 1
        self._space: list[str] = []
        self._begun = ""
        self._skipping = False

    def feed(self, text: str, start: int = 0) -> Found:
        """Search on, from ``start`` of a new piece of text."""
        end, begun = len(text), self._begun
        if begun:
            text, start, self._begun = begun + text[start:], 0, ""
        if self._skipping:
            start = _after_space(text, start)
            self._skipping = start == len(text)
        if match := self._pattern.search(text, start):
            before = self._without_space(text[start : match.start()])
            return Found(before, self._take_space(), match.group(), end - len(text) + match.end())
        rest = text[start:]
        self._begun = self._begun_tag(rest)
        return Found(self._without_space(rest.removesuffix(self._begun)), "", None, end)

    def skip_space(self) -> None:
        """White space that comes next is dropped: a tag stands before it."""
        self._skipping = True

    def plain(self, text: str) -> str:
        """Text that is known to hold no tag: what of it can be handed on. Only directly after a tag was found."""
        self._skipping = False
        return self._without_space(text)

    def finish(self) -> str:
        """What is held, which has not become a tag."""
        begun, self._begun = self._begun, ""
        return self._take_space() + begun

    def _begun_tag(self, text: str) -> str:
        """The longest end of the text that is a true prefix of a tag."""
        end = text[-self._longest_prefix :]
        if not self._first.isdisjoint(end):
            for start in range(len(end)):
                if end[start:] in self._prefixes:
                    return end[start:]
        return ""

    def _without_space(self, text: str) -> str:
        """The text up to its last white space, which is held; what was held before comes first."""
        solid = text.rstrip(WHITE_SPACE)
        before = self._take_space() if solid else ""
        if len(solid) < len(text):
            self._space.append(text[len(solid) :])
        return before + solid

    def _take_space(self) -> str:
        space = "".join(self._space)
        self._space.clear()
        return space


def _after_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start
