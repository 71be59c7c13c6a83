"""Finds tags in text that arrives in pieces. White space next to a tag belongs to the tag and is dropped, once."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

WHITE_SPACE: Final = " \t\r\n"

_SPACE: Final = re.compile(f"[{WHITE_SPACE}]*")


class Found(NamedTuple):
    """Result of a search: the ``text`` before the first tag, the white ``space`` before the tag, and the ``tag``.
    ``end`` is the index where the search stopped: after the tag, or at the end of the text if there is none."""

    text: str
    space: str
    tag: str | None
    end: int


@lru_cache(maxsize=256)
def _compile(tags: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str]]:
    """A pattern for the tags, and their proper prefixes."""
    prefixes = frozenset(tag[:length] for tag in tags for length in range(1, len(tag)))
    return re.compile("|".join(map(re.escape, tags))), prefixes


class TagSearch:
    """Finds the first of several tags. Holds back white space, and text that may become a tag."""

    def __init__(self, *tags: str) -> None:
        self._pattern, self._prefixes = _compile(tags)
        self._first = frozenset(tag[0] for tag in tags)
        self._longest_prefix = max(map(len, tags)) - 1
        self._space: list[str] = []
        self._partial_tag = ""
        self._skipping = False

    def feed(self, text: str, start: int = 0) -> Found:
        """Continue the search in a new piece of text, from index ``start``."""
        end, partial = len(text), self._partial_tag
        if partial:
            text, start, self._partial_tag = partial + text[start:], 0, ""
        if self._skipping:
            start = _after_space(text, start)
            self._skipping = start == len(text)
        if match := self._pattern.search(text, start):
            before = self._without_space(text[start : match.start()])
            return Found(before, self._take_space(), match.group(), end - len(text) + match.end())
        rest = text[start:]
        self._partial_tag = self._partial_tag_of(rest)
        return Found(self._without_space(rest.removesuffix(self._partial_tag)), "", None, end)

    def skip_space(self) -> None:
        """Drop the white space that follows, because it is after a tag."""
        self._skipping = True

    def plain(self, text: str) -> str:
        """Pass text that contains no tag; returns what is not held back. Only directly after a tag was found."""
        self._skipping = False
        return self._without_space(text)

    def finish(self) -> str:
        """The text held back, which did not become a tag."""
        partial, self._partial_tag = self._partial_tag, ""
        return self._take_space() + partial

    def _partial_tag_of(self, text: str) -> str:
        """The longest suffix of the text that is a proper prefix of a tag."""
        end = text[-self._longest_prefix :]
        if not self._first.isdisjoint(end):
            for start in range(len(end)):
                if end[start:] in self._prefixes:
                    return end[start:]
        return ""

    def _without_space(self, text: str) -> str:
        """The text without its trailing white space, which is held; white space held before comes first."""
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
