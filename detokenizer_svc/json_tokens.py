"""The tokens of JSON (RFC 8259) for a scanner that reads one character at a time: white space, strings, numbers, words.

Also the Python spellings ``True``, ``False`` and ``None``, which models write for ``true``, ``false`` and ``null``.
"""

from __future__ import annotations

import re
from typing import Final

CLOSING_BRACKETS: Final = {"{": "}", "[": "]"}
ESCAPES: Final = frozenset('"\\/bfnrt')
"""What may follow a backslash in a string, except ``u``."""
HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
LITERALS: Final = {
    word[0]: (word[1:], meaning)
    for word, meaning in {
        "true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"
    }.items()
}  # fmt: skip
"""By first letter: the rest of the word, and its JSON spelling."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING_RUN: Final = re.compile(r'[^"\\]*')
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_ESCAPED_CONTROL: Final = {code: f"\\u{code:04x}" for code in range(0x20)} | {
    ord(character): escape for character, escape in zip("\b\t\n\f\r", ("\\b", "\\t", "\\n", "\\f", "\\r"), strict=True)
}


def _digits(to: str) -> dict[str, str]:
    return dict.fromkeys("0123456789", to)


_EXPONENT: Final = {"e": "exponent", "E": "exponent"}
NUMBER_STATES: Final = {
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
"""The next state after each character of a number."""
SETTLED_NUMBER: Final = frozenset({"integer", "fraction", "power"})
"""States in which the number so far is a number, whatever follows."""
COMPLETE_NUMBER: Final = SETTLED_NUMBER | {"zero"}
"""States in which a number may end. After a leading zero it may end only if no digit follows."""


def skip_space(text: str, at: int) -> int:
    """The index after the JSON white space that starts at ``at``."""
    return _end(_SPACE, text, at)


def skip_string_run(text: str, at: int) -> int:
    """The index of the next quote or backslash, or the end of the text."""
    return _end(_STRING_RUN, text, at)


def escape_controls(run: str) -> str:
    """A part of a string with its control characters escaped."""
    return run.translate(_ESCAPED_CONTROL) if _CONTROL.search(run) else run


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
