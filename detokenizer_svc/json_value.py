"""A JSON value in text that comes in pieces: where it ends, whether it is one, and its text as strict JSON (RFC 8259).

Models write JSON with a few faults that leave no doubt about what is meant. These are mended on the way, and nothing
else is touched, so the text of a value without faults is given as it is:

- control characters inside strings are escaped;
- ``\\'`` is ``'``; the backslash of any other escape that JSON does not have is one of the text: ``\\d`` is ``\\\\d``;
- a comma before a closing bracket is dropped;
- ``True``, ``False`` and ``None`` are ``true``, ``false`` and ``null``.

Text is given as soon as it is *settled*: up to there it is a whole value once ``closing`` is put after it. A key is
settled with the start of its value, a number with each digit (a leading zero with what follows it), a string with each
character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING_RUN: Final = re.compile(r'[^"\\]*')
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_ESCAPED_CONTROL: Final = {code: f"\\u{code:04x}" for code in range(0x20)} | {
    ord(character): escape for character, escape in zip("\b\t\n\f\r", ("\\b", "\\t", "\\n", "\\f", "\\r"), strict=True)
}
_ESCAPES: Final = frozenset('"\\/bfnrt')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_LITERALS: Final = {
    word[0]: (word[1:], meant)
    for word, meant in {
        "true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"
    }.items()
}  # fmt: skip
"""By their first letter: the rest of the word, and what it means."""
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
_SETTLED_NUMBER: Final = frozenset({"integer", "fraction", "power"})
_WHOLE_NUMBER: Final = _SETTLED_NUMBER | {"zero"}
"""A zero is settled by what follows, which must be no digit."""


class Reading(Enum):
    """How far a scanner is."""

    GOING_ON = auto()
    WHOLE = auto()
    BROKEN = auto()
    """What was read is not the start of what was sought."""


class JsonValue:
    """Scans one value. Linear in the text, whatever its depth; never recursive.

    What is settled does not depend on what the text is cut into: each step reads text of one kind, and only white
    space, strings and numbers are settled before they are over.
    """

    def __init__(self) -> None:
        self.reading = Reading.GOING_ON
        self._open: list[str] = []
        """The brackets that are not closed yet, outermost first."""
        self._expect: Callable[[str, int], int] = self._value
        self._in_key = False
        self._in_string = False
        """Inside a string that is a value."""
        self._settled = False
        """Whether the text up to here, with ``closing``, is a value."""
        self._literal = self._meant = ""
        self._hex_digits = 0
        self._number = ""
        self._written: str | None = None
        """What the present step writes; None: what it reads."""
        self._out: list[str] = []
        """Settled, and not taken yet."""
        self._held: list[str] = []
        self._literal_at = self._escape_at = 0
        """Where in ``_held`` the present literal and the backslash of the present escape stand."""

    @property
    def closing(self) -> str:
        """What makes the settled text a whole value: the ends of a string and of what is open around it."""
        brackets = "".join([_CLOSING[bracket] for bracket in reversed(self._open)])
        return f'"{brackets}' if self._in_string else brackets

    def feed(self, text: str, start: int = 0) -> int:
        """Read on from ``start``; returns where reading stopped: at the end of the text, after the value, or at the
        character that breaks it. A number ends at the first character that is no part of it."""
        while start < len(text) and self.reading is Reading.GOING_ON:
            self._written = None
            end = self._expect(text, start)
            self._write(text[start:end] if self._written is None else self._written)
            start = end
        return start

    def take(self) -> str:
        """The settled text that has not been taken yet."""
        taken = "".join(self._out)
        self._out.clear()
        return taken

    def take_held(self) -> str:
        """The text that has been read and is not settled, once no more text comes."""
        held = "".join(self._held)
        self._held.clear()
        return held

    def _write(self, written: str) -> None:
        if self._settled and not self._held:
            self._out.append(written)
            return
        self._held.append(written)
        if self._settled:
            self._out += self._held
            self._held.clear()

    def _break(self, at: int) -> int:
        self._settled = False
        self.reading = Reading.BROKEN
        return at

    def _go_on(self, expect: Callable[[str, int], int], *, settled: bool = False) -> None:
        self._expect = expect
        self._settled = settled

    def _end_value(self) -> None:
        self._in_string = False
        self._go_on(self._after_value, settled=True)
        if not self._open:
            self.reading = Reading.WHOLE

    def _value(self, text: str, at: int) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        character = text[at]
        if character in _CLOSING:
            self._open.append(character)
            self._go_on(self._first_key if character == "{" else self._first_item, settled=True)
        elif character == '"':
            self._in_key, self._in_string = False, True
            self._go_on(self._string, settled=True)
        elif character in _LITERALS:
            self._begin_literal(character)
        elif character in _NUMBER["start"]:
            self._number = _NUMBER["start"][character]
            self._go_on(self._rest_of_number, settled=self._number in _SETTLED_NUMBER)
        else:
            return self._break(at)
        return at + 1

    def _first_item(self, text: str, at: int) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        if text[at] == "]":
            return self._close(at)
        self._go_on(self._value)
        return at

    def _item(self, text: str, at: int) -> int:
        """An item after a comma; or the end of the list, which makes the comma one too many."""
        return self._after_comma(text, at, self._value)

    def _first_key(self, text: str, at: int) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        return self._close(at) if text[at] == "}" else self._key(text, at)

    def _member(self, text: str, at: int) -> int:
        """A key after a comma; or the end of the object, which makes the comma one too many."""
        return self._after_comma(text, at, self._key)

    def _after_comma(self, text: str, at: int, then: Callable[[str, int], int]) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        if text[at] == _CLOSING[self._open[-1]]:
            self._held.clear()
            return self._close(at)
        return then(text, at)

    def _key(self, text: str, at: int) -> int:
        if text[at] != '"':
            return self._break(at)
        self._in_key = True
        self._go_on(self._string)
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._break(at)
        self._go_on(self._value)
        return at + 1

    def _after_value(self, text: str, at: int) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        bracket = self._open[-1]
        if text[at] == _CLOSING[bracket]:
            return self._close(at)
        if text[at] != ",":
            return self._break(at)
        self._go_on(self._member if bracket == "{" else self._item)
        return at + 1

    def _close(self, at: int) -> int:
        self._open.pop()
        self._end_value()
        return at + 1

    def _string(self, text: str, at: int) -> int:
        end = _end(_STRING_RUN, text, at)
        if end > at:
            run = text[at:end]
            self._written = run.translate(_ESCAPED_CONTROL) if _CONTROL.search(run) else run
            return end
        if text[at] == "\\":
            self._escape_at = len(self._held)
            self._go_on(self._escape)
        elif self._in_key:
            self._go_on(self._colon)
        else:
            self._end_value()
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        character = text[at]
        if character == "u":
            self._hex_digits = 4
            self._go_on(self._unicode)
            return at + 1
        if character == "'":
            self._held.pop()
        elif character not in _ESCAPES:
            return self._backslash(at)
        self._end_escape()
        return at + 1

    def _unicode(self, text: str, at: int) -> int:
        if text[at] not in _HEX:
            return self._backslash(at)
        self._hex_digits -= 1
        if not self._hex_digits:
            self._end_escape()
        return at + 1

    def _backslash(self, at: int) -> int:
        """What looked like an escape is none: its backslash is text, and so is what follows."""
        self._held[self._escape_at] = "\\\\"
        self._end_escape()
        return at

    def _end_escape(self) -> None:
        self._go_on(self._string, settled=not self._in_key)

    def _begin_literal(self, first: str) -> None:
        self._literal, self._meant = _LITERALS[first]
        self._literal_at = len(self._held)
        self._go_on(self._rest_of_literal)

    def _rest_of_literal(self, text: str, at: int) -> int:
        if text[at] != self._literal[0]:
            return self._break(at)
        self._literal = self._literal[1:]
        if not self._literal:
            del self._held[self._literal_at :]
            self._written = self._meant
            self._end_value()
        return at + 1

    def _rest_of_number(self, text: str, at: int) -> int:
        following = _NUMBER[self._number].get(text[at])
        if following is not None:
            self._number = following
            self._settled = following in _SETTLED_NUMBER
            return at + 1
        if self._number not in _WHOLE_NUMBER or (self._number == "zero" and text[at].isdigit()):
            return self._break(at)
        self._end_value()
        return at


def skip_space(text: str, at: int) -> int:
    """The place after the JSON white space that starts at ``at``."""
    return _end(_SPACE, text, at)


def scan_object(text: str) -> JsonValue | None:
    """A text that is one JSON object and nothing else, scanned; None: it is not."""
    value = JsonValue()
    end = value.feed(text)
    is_object = value.reading is Reading.WHOLE and text[skip_space(text, 0)] == "{"
    return value if is_object and skip_space(text, end) == len(text) else None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
