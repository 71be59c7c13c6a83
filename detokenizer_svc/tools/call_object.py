"""The JSON object of a tool call, ``{"name": "...", "arguments": {...}}``, in text that comes in pieces.

Members come in any order; others than these two are allowed and ignored. ``parameters`` is another word for
``arguments``. Arguments that are missing or null are ``{}``; an object that was encoded twice, as a JSON string, is
taken out of the string; anything else is no call. What is given of the arguments is the model's own text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from detokenizer_svc.json_value import JsonValue, Reading, is_json_object, skip_space

_NAME: Final = "name"
_ARGUMENTS: Final = "arguments"
_ALIASES: Final = {"parameters": _ARGUMENTS}


class CallObject:
    """Scans one call. Breaks where the text is no JSON, and where the JSON is no call."""

    def __init__(self) -> None:
        self.reading = Reading.GOING_ON
        self.name: str | None = None
        """The function's name, once it is known."""
        self.num_argument_characters = 0
        """How much of the arguments has been read, when they are an object."""
        self._arguments: list[str] = []
        self._seen: set[str] = set()
        self._key = ""
        self._raw: list[str] = []
        self._value = JsonValue()
        self._expect: Callable[[str, int], int] = self._opening

    @property
    def usable(self) -> bool:
        """Whether the call is whole: its object is, or lacks nothing but the closing bracket."""
        if self.name is None:
            return False
        return self.reading is Reading.WHOLE or (_ARGUMENTS in self._seen and self._expect == self._behind_member)

    def feed(self, text: str, start: int = 0) -> int:
        """Read on from ``start``; returns where reading stopped: at the end of the text, behind the object, or at the
        character that breaks it."""
        while start < len(text) and self.reading is Reading.GOING_ON:
            start = self._expect(text, start)
        return start

    def take_arguments(self) -> str:
        """The part of the arguments' text that has not been taken yet."""
        taken = "".join(self._arguments)
        self._arguments.clear()
        return taken

    def _break(self, at: int) -> int:
        self.reading = Reading.BROKEN
        return at

    def _end(self, at: int) -> int:
        self.reading = Reading.WHOLE
        if _ARGUMENTS not in self._seen:
            self._arguments.append("{}")
        return at

    def _opening(self, text: str, at: int) -> int:
        return self._sign(text, at, "{", self._first_member)

    def _first_member(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at < len(text) and text[at] == "}":
            return self._end(at + 1)
        return self._member(text, at)

    def _member(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        return self._begin(self._in_key, at) if text[at] == '"' else self._break(at)

    def _in_key(self, text: str, at: int) -> int:
        at = self._scan(text, at, self._raw)
        if self._value.reading is Reading.WHOLE:
            key = json.loads("".join(self._raw))
            self._key = _ALIASES.get(key, key)
            if self._key in self._seen:
                return self._break(at)
            if self._key in (_NAME, _ARGUMENTS):
                self._seen.add(self._key)
            self._expect = self._colon
        return at

    def _colon(self, text: str, at: int) -> int:
        return self._sign(text, at, ":", self._member_value)

    def _member_value(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        first = text[at]
        if self._key == _NAME:
            return self._begin(self._in_name, at) if first == '"' else self._break(at)
        if self._key != _ARGUMENTS:
            return self._begin(self._in_other, at)
        if first == "{":
            return self._begin(self._in_arguments, at)
        return self._begin(self._in_encoded_arguments, at) if first in '"n' else self._break(at)

    def _in_name(self, text: str, at: int) -> int:
        at = self._scan(text, at, self._raw)
        if self._value.reading is Reading.WHOLE:
            self.name = _decoded(self._raw) or None
            return self._end_member(at) if self.name else self._break(at)
        return at

    def _in_arguments(self, text: str, at: int) -> int:
        end = self._scan(text, at, self._arguments)
        self.num_argument_characters += end - at
        return self._end_member(end) if self._value.reading is Reading.WHOLE else end

    def _in_encoded_arguments(self, text: str, at: int) -> int:
        at = self._scan(text, at, self._raw)
        if self._value.reading is Reading.WHOLE:
            arguments = _decoded(self._raw)
            if arguments is None or (arguments and not is_json_object(arguments)):
                return self._break(at)
            self._arguments.append(arguments or "{}")
            return self._end_member(at)
        return at

    def _in_other(self, text: str, at: int) -> int:
        at = self._scan(text, at, [])
        return self._end_member(at) if self._value.reading is Reading.WHOLE else at

    def _behind_member(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at < len(text) and text[at] == "}":
            return self._end(at + 1)
        return self._sign(text, at, ",", self._member)

    def _sign(self, text: str, at: int, sign: str, then: Callable[[str, int], int]) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != sign:
            return self._break(at)
        self._expect = then
        return at + 1

    def _begin(self, expect: Callable[[str, int], int], at: int) -> int:
        """A value of its own starts here."""
        self._value = JsonValue()
        self._raw.clear()
        self._expect = expect
        return at

    def _scan(self, text: str, at: int, into: list[str]) -> int:
        end = self._value.feed(text, at)
        into.append(text[at:end])
        return self._break(end) if self._value.reading is Reading.BROKEN else end

    def _end_member(self, at: int) -> int:
        self._expect = self._behind_member
        return at


def _decoded(raw: list[str]) -> str | None:
    """The text that a JSON string, in pieces, stands for; "" for null; None if no Unicode text (a lone surrogate)."""
    text: str = json.loads("".join(raw)) or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text
