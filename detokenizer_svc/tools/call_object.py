"""The JSON object of a tool call, ``{"name": "...", "arguments": {...}}``, in text that comes in pieces.

Members come in any order; others than these two are allowed and ignored. ``parameters`` is another word for
``arguments``. Arguments that are missing or null are ``{}``; an object that was encoded twice, as a JSON string, is
taken out of the string; anything else is no call. What is given of the arguments is the model's own text, mended where
``JsonValue`` mends. Once both are known the call is decided: another ``name`` or ``arguments`` is a member to ignore.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from detokenizer_svc.json_tokens import skip_space
from detokenizer_svc.json_value import JsonValue, Reading, scan_object

_NAME: Final = "name"
_ARGUMENTS: Final = "arguments"
_ALIASES: Final = {"parameters": _ARGUMENTS}


class CallObject:
    """Scans one call. Breaks where the text is no JSON, and where the JSON is no call."""

    def __init__(self) -> None:
        self.reading = Reading.GOING_ON
        self.name: str | None = None
        """The function's name, once it is known."""
        self.arguments: JsonValue | None = None
        """Its arguments, once they begin as an object or are known to stand for one."""
        self._seen: set[str] = set()
        self._key = ""
        self._value = JsonValue()
        self._expect: Callable[[str, int], int] = self._opening

    @property
    def has_all_arguments(self) -> bool:
        """Whether the arguments are whole."""
        return self.arguments is not None and self.arguments.reading is Reading.WHOLE

    @property
    def usable(self) -> bool:
        """Whether the call is whole: its object is, or lacks nothing but the closing bracket."""
        if self.name is None or not self.has_all_arguments:
            return False
        return self.reading is Reading.WHOLE or self._expect == self._after_member

    def feed(self, text: str, start: int = 0) -> int:
        """Read on from ``start``; returns where reading stopped: at the end of the text, after the object, or at the
        character that breaks it."""
        while start < len(text) and self.reading is Reading.GOING_ON:
            start = self._expect(text, start)
        return start

    def take_held(self) -> str:
        """What has been read of the arguments and can be no part of an object, once the call is over."""
        return self.arguments.take_held() if self.arguments else ""

    def _break(self, at: int) -> int:
        self.reading = Reading.BROKEN
        return at

    def _end(self, at: int) -> int:
        self.reading = Reading.WHOLE
        if self.arguments is None:
            self.arguments = scan_object("{}")
        return at

    def _opening(self, text: str, at: int) -> int:
        return self._sign(text, at, "{", self._member)

    def _member(self, text: str, at: int) -> int:
        """A member; or the end of the object, also after a comma, which is one too many then."""
        at = skip_space(text, at)
        if at == len(text):
            return at
        if text[at] == "}":
            return self._end(at + 1)
        return self._begin(self._in_key, at) if text[at] == '"' else self._break(at)

    def _in_key(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        if self._value.reading is Reading.WHOLE:
            key = json.loads(self._value.take())
            self._key = _ALIASES.get(key, key)
            if self._key in self._seen and len(self._seen) < 2:
                return self._break(at)
            self._expect = self._colon
        return at

    def _colon(self, text: str, at: int) -> int:
        return self._sign(text, at, ":", self._member_value)

    def _member_value(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        if self._key not in (_NAME, _ARGUMENTS) or self._key in self._seen:
            return self._begin(self._in_other, at)
        self._seen.add(self._key)
        first = text[at]
        if self._key == _NAME:
            return self._begin(self._in_name, at) if first == '"' else self._break(at)
        if first == "{":
            self._begin(self._in_arguments, at)
            self.arguments = self._value
            return at
        return self._begin(self._in_encoded_arguments, at) if first in '"nN' else self._break(at)

    def _in_name(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        if self._value.reading is Reading.WHOLE:
            self.name = _decoded(self._value) or None
            return self._end_member(at) if self.name else self._break(at)
        return at

    def _in_arguments(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        return self._end_member(at) if self._value.reading is Reading.WHOLE else at

    def _in_encoded_arguments(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        if self._value.reading is Reading.WHOLE:
            decoded = _decoded(self._value)
            self.arguments = None if decoded is None else scan_object(decoded or "{}")
            return self._break(at) if self.arguments is None else self._end_member(at)
        return at

    def _in_other(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        self._value.take()
        return self._end_member(at) if self._value.reading is Reading.WHOLE else at

    def _after_member(self, text: str, at: int) -> int:
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
        self._expect = expect
        return at

    def _scan(self, text: str, at: int) -> int:
        end = self._value.feed(text, at)
        return self._break(end) if self._value.reading is Reading.BROKEN else end

    def _end_member(self, at: int) -> int:
        self._expect = self._after_member
        return at


def _decoded(value: JsonValue) -> str | None:
    """The text that a JSON string stands for; "" for null; None if no Unicode text (a lone surrogate)."""
    text: str = json.loads(value.take()) or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text
