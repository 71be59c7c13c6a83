"""Positions of tokens in the text: maps numbers of characters to numbers of tokens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Span:
    """Characters ``begin`` to ``end`` of the text, excluding ``end``; None: not ended yet."""

    begin: int
    end: int | None = None


class TokenPositions:
    """The end of each token in the text, in characters.

    A token may end inside a character, so ends are stored as half characters: ``2 * characters``, plus one if the next
    character is incomplete.
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._characters = 0

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self._ends)

    @property
    def num_characters(self) -> int:
        """Number of complete characters so far."""
        return self._characters

    def add(self, num_characters: int, *, unfinished: bool = False) -> None:
        """Add a token that completes ``num_characters`` and, if ``unfinished``, starts another one."""
        self._characters += num_characters
        self._ends.append(2 * self._characters + unfinished)

    def characters_after(self, num_tokens: int) -> int | None:
        """How many characters are complete after the first ``num_tokens`` tokens; None: there are fewer tokens."""
        if num_tokens > len(self._ends):
            return None
        return self._ends[num_tokens - 1] // 2 if num_tokens else 0

    def tokens_until(self, num_characters: int) -> int:
        """How many tokens it takes to complete ``num_characters``; all tokens if there are fewer characters."""
        return min(bisect_left(self._ends, 2 * num_characters) + 1, len(self._ends))

    def tokens_within(self, spans: Iterable[Span], length: int) -> int:
        """How many tokens overlap the ``spans``; a span that has not ended ends at ``length``."""
        counted = total = 0
        for span in spans:
            first, last = self._touching(span.begin, length if span.end is None else span.end)
            total += max(0, last - max(first, counted))
            counted = max(counted, last)
        return total

    def _touching(self, begin: int, end: int) -> tuple[int, int]:
        """Numbers of the first token that ends after ``begin`` and the first that starts at or after ``end``."""
        first = bisect_right(self._ends, 2 * begin)
        last = min(bisect_left(self._ends, 2 * end) + 1, len(self._ends)) if end > 0 else 0
        return first, last
