"""The JSON object of a tool call, ``{"name": "...", "arguments": {...}}``, in text that arrives in pieces.

Members may come in any order; other members are ignored. ``parameters`` is an alias of ``arguments``. Missing or null
arguments are ``{}``; an object encoded as a JSON string is decoded; any other value makes the call invalid. Arguments
keep the model's own text, repaired by ``JsonValue``. Once both members are known, a second ``name`` or ``arguments`` is
ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from detokenizer_svc.json_tokens import skip_space
from detokenizer_svc.json_value import JsonValue, ScanState, scan_object

_NAME: Final = "name"
_ARGUMENTS: Final = "arguments"
_ALIASES: Final = {"parameters": _ARGUMENTS}


class CallObject:
    """Scanner for one call. Invalid where the text is not JSON, and where the JSON is not a call."""

    def __init__(self) -> None:
        self.state = ScanState.INCOMPLETE
        self.name: str | None = None
        """The function's name, once it is known."""
        self.arguments: JsonValue | None = None
        """The arguments, once they start as an object or are known to stand for one."""
        self._seen: set[str] = set()
        self._key = ""
        self._value = JsonValue()
        self._expect: Callable[[str, int], int] = self._opening

    @property
    def has_all_arguments(self) -> bool:
        """Whether the arguments are complete."""
        return self.arguments is not None and self.arguments.state is ScanState.COMPLETE

    @property
    def usable(self) -> bool:
        """Whether the call is complete: its object is, or lacks only the closing bracket."""
        if self.name is None or not self.has_all_arguments:
            return False
        return self.state is ScanState.COMPLETE or self._expect == self._after_member

    def feed(self, text: str, start: int = 0) -> int:
        """Read from index ``start`` on. Returns the index where reading stopped: the end of the text, the end of the
        object, or the invalid character."""
        while start < len(text) and self.state is ScanState.INCOMPLETE:
            start = self._expect(text, start)
        return start

    def take_held(self) -> str:
        """The text of the arguments that is not settled, once the call has ended."""
        return self.arguments.take_held() if self.arguments else ""

    def _invalid(self, at: int) -> int:
        self.state = ScanState.INVALID
        return at

    def _end(self, at: int) -> int:
        self.state = ScanState.COMPLETE
        if self.arguments is None:
            self.arguments = scan_object("{}")
        return at

    def _opening(self, text: str, at: int) -> int:
        return self._character(text, at, "{", self._member)

    def _member(self, text: str, at: int) -> int:
        """A member; or the end of the object, also after a comma."""
        at = skip_space(text, at)
        if at == len(text):
            return at
        if text[at] == "}":
            return self._end(at + 1)
        return self._begin(self._in_key, at) if text[at] == '"' else self._invalid(at)

    def _in_key(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        if self._value.state is ScanState.COMPLETE:
            key = json.loads(self._value.take())
            self._key = _ALIASES.get(key, key)
            if self._key in self._seen and len(self._seen) < 2:
                return self._invalid(at)
            self._expect = self._colon
        return at

    def _colon(self, text: str, at: int) -> int:
        return self._character(text, at, ":", self._member_value)

    def _member_value(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        if self._key not in (_NAME, _ARGUMENTS) or self._key in self._seen:
            return self._begin(self._in_other, at)
        self._seen.add(self._key)
        first = text[at]
        if self._key == _NAME:
            return self._begin(self._in_name, at) if first == '"' else self._invalid(at)
        if first == "{":
            self._begin(self._in_arguments, at)
            self.arguments = self._value
            return at
        return self._begin(self._in_encoded_arguments, at) if first in '"nN' else self._invalid(at)

    def _in_name(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        if self._value.state is ScanState.COMPLETE:
            self.name = _decoded(self._value) or None
            return self._end_member(at) if self.name else self._invalid(at)
        return at

    def _in_arguments(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        return self._end_member(at) if self._value.state is ScanState.COMPLETE else at

    def _in_encoded_arguments(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        if self._value.state is ScanState.COMPLETE:
            decoded = _decoded(self._value)
            self.arguments = None if decoded is None else scan_object(decoded or "{}")
            return self._invalid(at) if self.arguments is None else self._end_member(at)
        return at

    def _in_other(self, text: str, at: int) -> int:
        at = self._scan(text, at)
        self._value.take()
        return self._end_member(at) if self._value.state is ScanState.COMPLETE else at

    def _after_member(self, text: str, at: int) -> int:
        at = skip_space(text, at)
        if at < len(text) and text[at] == "}":
            return self._end(at + 1)
        return self._character(text, at, ",", self._member)

    def _character(self, text: str, at: int, character: str, then: Callable[[str, int], int]) -> int:
        at = skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != character:
            return self._invalid(at)
        self._expect = then
        return at + 1

    def _begin(self, expect: Callable[[str, int], int], at: int) -> int:
        """Start to scan a value."""
        self._value = JsonValue()
        self._expect = expect
        return at

    def _scan(self, text: str, at: int) -> int:
        end = self._value.feed(text, at)
        return self._invalid(end) if self._value.state is ScanState.INVALID else end

    def _end_member(self, at: int) -> int:
        self._expect = self._after_member
        return at


def _decoded(value: JsonValue) -> str | None:
    """The decoded JSON string; "" for null; None if it is not valid Unicode (a lone surrogate)."""
    text: str = json.loads(value.take()) or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text
