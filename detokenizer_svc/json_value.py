"""Scans a JSON value in text that arrives in pieces: where it ends, whether it is valid, and its text as strict JSON.

Models write JSON with a few unambiguous faults. These are repaired; a valid value keeps its text exactly:

- control characters inside strings are escaped;
- ``\\'`` becomes ``'``; the backslash of any other invalid escape is doubled: ``\\d`` becomes ``\\\\d``;
- a comma before a closing bracket is dropped;
- ``True``, ``False`` and ``None`` become ``true``, ``false`` and ``null``.

Text is emitted once it is *settled*: when the text so far is a complete value after ``closing`` is appended. A key is
settled with the start of its value, a number with each digit (a leading zero with the character after it), a string
with each character.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from detokenizer_svc.json_tokens import (
    CLOSING_BRACKETS,
    COMPLETE_NUMBER,
    ESCAPES,
    HEX_DIGITS,
    LITERALS,
    NUMBER_STATES,
    SETTLED_NUMBER,
    escape_controls,
    skip_space,
    skip_string_run,
)
from detokenizer_svc.settled_text import SettledText


class ScanState(Enum):
    """State of a scanner."""

    INCOMPLETE = auto()
    COMPLETE = auto()
    INVALID = auto()
    """The text read so far cannot become what the scanner reads."""


class JsonValue:
    """Scanner for one value, in linear time at any depth; not recursive.

    What is settled does not depend on how the text is cut: each step reads text of one kind, and only white space,
    strings and numbers are settled before they end.
    """

    def __init__(self) -> None:
        self.state = ScanState.INCOMPLETE
        self._open: list[str] = []
        """Unclosed brackets, outermost first."""
        self._expect: Callable[[str, int], int] = self._value
        """The current state: reads from an index on, returns the index where it stopped."""
        self._in_key = False
        self._in_string = False
        """Inside a string that is a value, not a key."""
        self._settled = False
        """Whether the text so far is a value once ``closing`` is appended."""
        self._literal = self._meaning = ""
        self._hex_digits = 0
        self._number = ""
        self._written: str | None = None
        """What the current step writes; None: the text it reads."""
        self._text = SettledText()
        self._literal_mark = self._escape_mark = 0
        """Where the current literal, and the backslash of the current escape, were written."""

    @property
    def closing(self) -> str:
        """The text that completes the settled text: the end of an open string, and all closing brackets."""
        brackets = "".join([CLOSING_BRACKETS[bracket] for bracket in reversed(self._open)])
        return f'"{brackets}' if self._in_string else brackets

    def feed(self, text: str, start: int = 0) -> int:
        """Read from index ``start`` on. Returns the index where reading stopped: the end of the text, the end of the
        value, or the invalid character. A number ends at the first character that is not part of it."""
        while start < len(text) and self.state is ScanState.INCOMPLETE:
            self._written = None
            end = self._expect(text, start)
            self._text.write(text[start:end] if self._written is None else self._written, settled=self._settled)
            start = end
        return start

    def take(self) -> str:
        """The settled text that has not been taken yet."""
        return self._text.take()

    def take_held(self) -> str:
        """The text that was read and is not settled, once no more text comes."""
        return self._text.take_held()

    def _invalid(self, at: int) -> int:
        self._settled = False
        self.state = ScanState.INVALID
        return at

    def _go_on(self, expect: Callable[[str, int], int], *, settled: bool = False) -> None:
        self._expect = expect
        self._settled = settled

    def _end_value(self) -> None:
        self._in_string = False
        self._go_on(self._after_value, settled=True)
        if not self._open:
            self.state = ScanState.COMPLETE

    def _value(self, text: str, at: int) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        character = text[at]
        if character in CLOSING_BRACKETS:
            self._open.append(character)
            self._go_on(self._first_key if character == "{" else self._first_item, settled=True)
        elif character == '"':
            self._in_key, self._in_string = False, True
            self._go_on(self._string, settled=True)
        elif character in LITERALS:
            self._begin_literal(character)
        elif character in NUMBER_STATES["start"]:
            self._number = NUMBER_STATES["start"][character]
            self._go_on(self._rest_of_number, settled=self._number in SETTLED_NUMBER)
        else:
            return self._invalid(at)
        return at + 1

    def _first_item(self, text: str, at: int) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        if text[at] == "]":
            return self._close(at)
        self._go_on(self._value)
        return at

    def _item(self, text: str, at: int) -> int:
        """An item after a comma; or the end of the list, so that the comma is dropped."""
        return self._after_comma(text, at, self._value)

    def _first_key(self, text: str, at: int) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        return self._close(at) if text[at] == "}" else self._key(text, at)

    def _member(self, text: str, at: int) -> int:
        """A key after a comma; or the end of the object, so that the comma is dropped."""
        return self._after_comma(text, at, self._key)

    def _after_comma(self, text: str, at: int, then: Callable[[str, int], int]) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        if text[at] == CLOSING_BRACKETS[self._open[-1]]:
            self._text.drop_held()
            return self._close(at)
        return then(text, at)

    def _key(self, text: str, at: int) -> int:
        if text[at] != '"':
            return self._invalid(at)
        self._in_key = True
        self._go_on(self._string)
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._invalid(at)
        self._go_on(self._value)
        return at + 1

    def _after_value(self, text: str, at: int) -> int:
        if (after := skip_space(text, at)) > at:
            return after
        bracket = self._open[-1]
        if text[at] == CLOSING_BRACKETS[bracket]:
            return self._close(at)
        if text[at] != ",":
            return self._invalid(at)
        self._go_on(self._member if bracket == "{" else self._item)
        return at + 1

    def _close(self, at: int) -> int:
        self._open.pop()
        self._end_value()
        return at + 1

    def _string(self, text: str, at: int) -> int:
        end = skip_string_run(text, at)
        if end > at:
            self._written = escape_controls(text[at:end])
            return end
        if text[at] == "\\":
            self._escape_mark = self._text.mark
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
            self._text.drop_held(self._escape_mark)
        elif character not in ESCAPES:
            return self._backslash(at)
        self._end_escape()
        return at + 1

    def _unicode(self, text: str, at: int) -> int:
        if text[at] not in HEX_DIGITS:
            return self._backslash(at)
        self._hex_digits -= 1
        if not self._hex_digits:
            self._end_escape()
        return at + 1

    def _backslash(self, at: int) -> int:
        """Not a valid escape: its backslash is text, and so is what follows."""
        self._text.replace_held(self._escape_mark, "\\\\")
        self._end_escape()
        return at

    def _end_escape(self) -> None:
        self._go_on(self._string, settled=not self._in_key)

    def _begin_literal(self, first: str) -> None:
        self._literal, self._meaning = LITERALS[first]
        self._literal_mark = self._text.mark
        self._go_on(self._rest_of_literal)

    def _rest_of_literal(self, text: str, at: int) -> int:
        if text[at] != self._literal[0]:
            return self._invalid(at)
        self._literal = self._literal[1:]
        if not self._literal:
            self._text.drop_held(self._literal_mark)
            self._written = self._meaning
            self._end_value()
        return at + 1

    def _rest_of_number(self, text: str, at: int) -> int:
        following = NUMBER_STATES[self._number].get(text[at])
        if following is not None:
            self._number = following
            self._settled = following in SETTLED_NUMBER
            return at + 1
        if self._number not in COMPLETE_NUMBER or (self._number == "zero" and text[at].isdigit()):
            return self._invalid(at)
        self._end_value()
        return at


def scan_object(text: str) -> JsonValue | None:
    """The scanned object, if the text is exactly one JSON object; else None."""
    value = JsonValue()
    end = value.feed(text)
    is_object = value.state is ScanState.COMPLETE and text[skip_space(text, 0)] == "{"
    return value if is_object and skip_space(text, end) == len(text) else None
