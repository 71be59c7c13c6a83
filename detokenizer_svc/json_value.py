"""A JSON value in text that comes in pieces: where it ends, and whether it is one (RFC 8259, nothing more lenient)."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING_RUN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPES: Final = frozenset('"\\/bfnrt')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_LITERALS: Final = {"t": "rue", "f": "alse", "n": "ull"}
_CLOSING: Final = {"{": "}", "[": "]"}


def _digits(to: str) -> dict[str, str]:
    return dict.fromkeys("0123456789", to)


_EXPONENT: Final = {"e": "exponent", "E": "exponent"}
_NUMBER: Final = {
    "start": {"-": "minus", "0": "zero", **dict.fromkeys("123456789", "integer")},
    "minus": {"0": "zero", **dict.fromkeys("123456789", "integer")},
    "zero": {".": "point", **_EXPONENT},
    "integer": {".": "point", **_digits("integer"), **_EXPONENT},
    "point": _digits("fraction"),
    "fraction": {**_digits("fraction"), **_EXPONENT},
    "exponent": {"+": "sign", "-": "sign", **_digits("power")},
    "sign": _digits("power"),
    "power": _digits("power"),
}
"""Where each character leads inside a number."""
_WHOLE_NUMBER: Final = frozenset({"zero", "integer", "fraction", "power"})


class Reading(Enum):
    """How far a scanner is."""

    GOING_ON = auto()
    WHOLE = auto()
    BROKEN = auto()
    """What was read is not the begin of what was sought."""


class JsonValue:
    """Scans one value. Linear in the text, whatever its depth; never recursive."""

    def __init__(self) -> None:
        self.reading = Reading.GOING_ON
        self._open: list[str] = []
        """The brackets that are not closed yet, outermost first."""
        self._expect: Callable[[str, int], int] = self._value
        self._in_key = False
        self._literal = ""
        self._hex_digits = 0
        self._number = ""

    def feed(self, text: str, start: int = 0) -> int:
        """Read on from ``start``; returns where reading stopped: at the end of the text, behind the value, or at the
        character that breaks it. A number ends at the first character that is no part of it."""
        while start < len(text) and self.reading is Reading.GOING_ON:
            start = self._expect(text, start)
        return start

    def _break(self, at: int) -> int:
        self.reading = Reading.BROKEN
        return at

    def _end_value(self) -> None:
        self._expect = self._behind_value
        if not self._open:
            self.reading = Reading.WHOLE

    def _value(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        character = text[at]
        if character in _CLOSING:
            self._open.append(character)
            self._expect = self._first_key if character == "{" else self._first_item
        elif character == '"':
            self._in_key = False
            self._expect = self._string
        elif character in _LITERALS:
            self._literal = _LITERALS[character]
            self._expect = self._rest_of_literal
        elif character in _NUMBER["start"]:
            self._number = _NUMBER["start"][character]
            self._expect = self._rest_of_number
        else:
            return self._break(at)
        return at + 1

    def _first_item(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at < len(text) and text[at] == "]":
            return self._close(at)
        self._expect = self._first_item if at == len(text) else self._value
        return at

    def _first_key(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at < len(text) and text[at] == "}":
            return self._close(at)
        return self._key(text, at)

    def _key(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != '"':
            return self._break(at)
        self._in_key = True
        self._expect = self._string
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._break(at)
        self._expect = self._value
        return at + 1

    def _behind_value(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        bracket = self._open[-1]
        if text[at] == _CLOSING[bracket]:
            return self._close(at)
        if text[at] != ",":
            return self._break(at)
        self._expect = self._key if bracket == "{" else self._value
        return at + 1

    def _close(self, at: int) -> int:
        self._open.pop()
        self._end_value()
        return at + 1

    def _string(self, text: str, at: int) -> int:
        at = _end(_STRING_RUN, text, at)
        if at == len(text):
            return at
        if text[at] == '"':
            if self._in_key:
                self._expect = self._colon
            else:
                self._end_value()
        elif text[at] == "\\":
            self._expect = self._escape
        else:
            return self._break(at)
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if text[at] == "u":
            self._hex_digits = 4
            self._expect = self._unicode
        elif text[at] in _ESCAPES:
            self._expect = self._string
        else:
            return self._break(at)
        return at + 1

    def _unicode(self, text: str, at: int) -> int:
        if text[at] not in _HEX:
            return self._break(at)
        self._hex_digits -= 1
        if not self._hex_digits:
            self._expect = self._string
        return at + 1

    def _rest_of_literal(self, text: str, at: int) -> int:
        if text[at] != self._literal[0]:
            return self._break(at)
        self._literal = self._literal[1:]
        if not self._literal:
            self._end_value()
        return at + 1

    def _rest_of_number(self, text: str, at: int) -> int:
        following = _NUMBER[self._number].get(text[at])
        if following is not None:
            self._number = following
            return at + 1
        if self._number not in _WHOLE_NUMBER:
            return self._break(at)
        self._end_value()
        return at


def skip_space(text: str, at: int) -> int:
    """The place behind the JSON white space that starts at ``at``."""
    return _end(_SPACE, text, at)


def is_json_object(text: str) -> bool:
    """Whether a text is one JSON object and nothing else."""
    value = JsonValue()
    end = value.feed(text)
    return value.reading is Reading.WHOLE and text.lstrip(" \t\n\r")[0] == "{" and skip_space(text, end) == len(text)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
