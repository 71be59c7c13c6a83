"""Matches stop strings by characters, however the text is cut, in linear time.

Aho, Corasick: Efficient string matching, 1975. The state after each character is the longest suffix of the text that
is a prefix of a stop string, which is also exactly the text to hold back.

A special token is one placeholder character here, so that a stop string matches it only as a whole. A stop string that
contains the spelling of a special token matches both the token and the same letters in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from svclib.errors import InvalidRequest

MAX_STOP_STRINGS: Final = 16
MAX_STOP_LENGTH: Final = 1024


def check_stop_strings(stop: Sequence[str]) -> None:
    """Raises ``InvalidRequest`` for too many stop strings, and for empty or too long ones."""
    if len(stop) > MAX_STOP_STRINGS:
        raise InvalidRequest(f"stop must have at most {MAX_STOP_STRINGS} strings", param="stop")
    if any(not 0 < len(string) <= MAX_STOP_LENGTH for string in stop):
        raise InvalidRequest(f"each stop string must have 1 to {MAX_STOP_LENGTH} characters", param="stop")


class _Automaton:
    """States are the prefixes of the stop strings; 0 is the empty prefix. Immutable once built."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.next: list[dict[str, int]] = [{}]
        self.fallback = [0]
        """By state: the longest other state that is its suffix."""
        self.length = [0]
        self.found: list[int | None] = [None]
        """By state: the stop string that ends there; of several, the first in the list."""
        for number, string in enumerate(stop):
            self._add(string, number)
        self._link()

    def _add(self, string: str, number: int) -> None:
        state = 0
        for character in string:
            if character not in self.next[state]:
                self.next[state][character] = len(self.next)
                self.next.append({})
                self.fallback.append(0)
                self.length.append(self.length[state] + 1)
                self.found.append(None)
            state = self.next[state][character]
        if self.found[state] is None:
            self.found[state] = number

    def _link(self) -> None:
        """Set the fallbacks, shorter states first."""
        for state in sorted(range(len(self.next)), key=self.length.__getitem__):
            for character, target in self.next[state].items():
                self.fallback[target] = self.step(self.fallback[state], character) if state else 0
                ends = [n for n in (self.found[target], self.found[self.fallback[target]]) if n is not None]
                self.found[target] = min(ends, default=None)

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while state and character not in self.next[state]:
            state = self.fallback[state]
        return self.next[state].get(character, 0)


@lru_cache(maxsize=8)
def _automaton_of(stop: tuple[str, ...]) -> _Automaton:
    """Cached for the choices of a request, because building one takes milliseconds."""
    return _Automaton(stop)


class StopMatcher:
    """Text in, text out up to the stop string that is complete first; if several end together, the first in the list.

    ``special``: spellings of the special tokens that ``feed_special`` accepts. In the returned text, each is its
    character in ``placeholders``: a lone surrogate, which decoded text never contains.
    """

    def __init__(self, stop: Sequence[str], special: Iterable[str] = ()) -> None:
        self.matched: str | None = None
        self.num_characters = 0
        """Number of characters read; after a match, up to its end."""
        self.placeholders = dict(
            zip(sorted(special, key=len, reverse=True), map(chr, range(0xD800, 0xE000)), strict=False)
        )
        self._stop = stop
        self._patterns, self._numbers = _patterns(stop, self.placeholders)
        self._automaton = _automaton_of(self._patterns)
        self._first = re.compile("[" + "".join(re.escape(pattern[0]) for pattern in self._patterns) + "]")
        self._state = 0
        self._held = ""

    def feed(self, text: str, *, min_characters: int = 0) -> str:
        """The text that is not held back. A match that ends within the first ``min_characters`` is ignored."""
        return self._feed(text, min_characters - self.num_characters, 1)

    def feed_special(self, spelling: str, *, min_characters: int = 0) -> str:
        """The same for a special token; its length is that of its ``spelling``."""
        return self._feed(self.placeholders[spelling], min_characters - self.num_characters, len(spelling))

    def interrupt(self, num_characters: int = 0) -> str:
        """Release the held text, because ``num_characters`` follow that no stop string can contain."""
        self.num_characters += num_characters
        self._state = 0
        return self._release(self._held, 0)

    def _feed(self, text: str, min_characters: int, width: int) -> str:
        """Read characters of length ``width``; matches that end within ``min_characters`` from here are ignored."""
        automaton = self._automaton
        at = self._next(text, 0)
        while at < len(text):
            self._state = automaton.step(self._state, text[at])
            at += 1
            number = automaton.found[self._state]
            if number is not None and at * width > min_characters:
                self.num_characters += at * width
                return self._match(number, text[:at])
            at = self._next(text, at)
        self.num_characters += len(text) * width
        return self._release(self._held + text, automaton.length[self._state])

    def _next(self, text: str, at: int) -> int:
        """Index of the next relevant character: in state 0, the first character of a stop string."""
        if self._state:
            return at
        found = self._first.search(text, at)
        return found.start() if found else len(text)

    def _match(self, number: int, text: str) -> str:
        self.matched = self._stop[self._numbers[number]]
        return (self._held + text)[: -len(self._patterns[number])]

    def _release(self, text: str, num_held: int) -> str:
        cut = len(text) - num_held
        self._held = text[cut:]
        return text[:cut]


def _patterns(stop: Sequence[str], placeholders: Mapping[str, str]) -> tuple[tuple[str, ...], list[int]]:
    """The patterns to match, and the index of the stop string of each; in the order of the stop strings."""
    patterns = [
        (string, number)
        for number, plain in enumerate(stop)
        for string in dict.fromkeys((plain, _with_placeholders(plain, placeholders)))
    ]
    return tuple(string for string, _ in patterns), [number for _, number in patterns]


def _with_placeholders(text: str, placeholders: Mapping[str, str]) -> str:
    if not placeholders:
        return text
    return re.sub("|".join(map(re.escape, placeholders)), lambda match: placeholders[match.group()], text)
