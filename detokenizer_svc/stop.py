"""Stop strings: found over characters, however the text is cut, in linear time.

Aho, Corasick: Efficient string matching, 1975. The state after each character is the longest suffix of the text that
is a prefix of a stop string, which is also exactly what must be held back.

A special token is one sign here, whatever its spelling, so that a stop string is found in it only as a whole. A stop
string that spells one is sought both ways: with the token, and with the same letters in the text.
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
    """Raises ``InvalidRequest`` for strings that no output can be searched for."""
    if len(stop) > MAX_STOP_STRINGS:
        raise InvalidRequest(f"at most {MAX_STOP_STRINGS} stop strings are possible", param="stop")
    if any(not 0 < len(string) <= MAX_STOP_LENGTH for string in stop):
        raise InvalidRequest(f"a stop string has 1 to {MAX_STOP_LENGTH} characters", param="stop")


class _Automaton:
    """The prefixes of the stop strings as states; 0 is the empty one. Does not change once it is built."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.next: list[dict[str, int]] = [{}]
        self.fallback = [0]
        """The longest other state that is a suffix of the state."""
        self.length = [0]
        self.found: list[int | None] = [None]
        """The stop string that ends here; of several the first in the list."""
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
        """Set fallbacks, shorter states first."""
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
    """Shared by the choices of a request, of which each would take milliseconds to build its own."""
    return _Automaton(stop)


class StopMatcher:
    """Text in, text out up to the stop string that is complete first; of those that end together, the first listed.

    ``special``: spellings of special tokens that may come, by ``feed_special``. In what is given back each is the sign
    that ``signs`` has for it: a lone surrogate, which no decoded text holds.
    """

    def __init__(self, stop: Sequence[str], special: Iterable[str] = ()) -> None:
        self.matched: str | None = None
        self.num_characters = 0
        """How much of the text has been read; once something matched, up to the end of the match."""
        self.signs = dict(zip(sorted(special, key=len, reverse=True), map(chr, range(0xD800, 0xE000)), strict=False))
        self._stop = stop
        self._patterns, self._numbers = _patterns(stop, self.signs)
        self._automaton = _automaton_of(self._patterns)
        self._first = re.compile("[" + "".join(re.escape(pattern[0]) for pattern in self._patterns) + "]")
        self._state = 0
        self._held = ""

    def feed(self, text: str, *, armed_from: int = 0) -> str:
        """What can be handed on. A match that is complete within the first ``armed_from`` characters does not count."""
        return self._feed(text, armed_from - self.num_characters, 1)

    def feed_special(self, spelling: str, *, armed_from: int = 0) -> str:
        """The same for a special token, which is as long as its ``spelling``."""
        return self._feed(self.signs[spelling], armed_from - self.num_characters, len(spelling))

    def interrupt(self, num_characters: int = 0) -> str:
        """Give back what is held: something follows, ``num_characters`` long, that is no part of a stop string."""
        self.num_characters += num_characters
        self._state = 0
        return self._release(self._held, 0)

    def _feed(self, text: str, armed_from: int, width: int) -> str:
        """Read characters that are each ``width`` long; matches count after ``armed_from`` from here."""
        automaton = self._automaton
        at = self._next(text, 0)
        while at < len(text):
            self._state = automaton.step(self._state, text[at])
            at += 1
            number = automaton.found[self._state]
            if number is not None and at * width > armed_from:
                self.num_characters += at * width
                return self._match(number, text[:at])
            at = self._next(text, at)
        self.num_characters += len(text) * width
        return self._release(self._held + text, automaton.length[self._state])

    def _next(self, text: str, at: int) -> int:
        """Where reading must go on: outside of any prefix, only the first character of a stop string matters."""
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


def _patterns(stop: Sequence[str], signs: Mapping[str, str]) -> tuple[tuple[str, ...], list[int]]:
    """What is sought, and of which stop string each is a way to write it; in the order of the stop strings."""
    ways = [
        (string, number)
        for number, plain in enumerate(stop)
        for string in dict.fromkeys((plain, _with_signs(plain, signs)))
    ]
    return tuple(string for string, _ in ways), [number for _, number in ways]


def _with_signs(text: str, signs: Mapping[str, str]) -> str:
    if not signs:
        return text
    return re.sub("|".join(map(re.escape, signs)), lambda match: signs[match.group()], text)
