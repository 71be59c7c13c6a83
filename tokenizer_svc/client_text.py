"""Keeps client text from becoming control tokens (R22).

A template joins its own text with the client's, and afterwards nothing shows whose ``<|im_end|>`` it is. So before
rendering, a mark is inserted into every spelling of a control token in the client's strings, and wherever a string
could form one together with its neighbour: at the end of a string that ends with a prefix of a spelling, at the start
of one that starts with a suffix, and in a string that is the middle of one. ``encoder`` recognises the template's own
spellings by the missing marks, and removes the marks.

A mark is a control character that does not occur in the request. Templates do not treat it as white space, and it sorts
before all text, so that a template that sorts the names of parameters writes them in the same order.

Assistant text keeps its reasoning and tool tags: templates look for them to remove reasoning from earlier turns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from svclib.errors import InvalidRequest
from tokenizer_svc.capabilities import Turn
from tokenizer_svc.formats import THINK_TAGS

_MARKS: Final = tuple(map(chr, (*range(0x01, 0x09), *range(0x0E, 0x1C))))
_ASSISTANT_TAG: Final = re.compile(
    r"</?(seed:)?(think|thinking|reasoning|tool_calls?|tool_response|answer)>|\[/?THINK\]"
)
_FIELDS: Final = frozenset(
    re.findall(
        r"\S+",
        """
        id type function name arguments description parameters strict text content role
        title properties required items enum const default format anyOf oneOf allOf additionalProperties
        minimum maximum minLength maxLength minItems maxItems pattern nullable $ref $defs
        """,
    )
)
"""Keys that templates look up in tools and calls; with a mark they would not be found."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Two characters that do not occur in a request."""

    broken: str
    """Inserted into spellings of control tokens in client text."""
    end: str
    """Inserted at the end of the message to be continued."""

    def restored(self, rendered: str) -> str:
        """Rendered text with the template's JSON escapes of the marks turned back into marks.

        JSON in JSON has more backslashes. All belong to the mark, because a mark never follows a backslash.
        """
        for mark in (self.broken, self.end):
            if _escape(mark) not in rendered:  # Much faster than the pattern.
                continue
            rendered = re.sub(rf"\\+{_escape(mark)[1:]}", mark, rendered)
        return rendered


def choose_marks(*client_values: Any) -> Marks:
    """Marks that occur in none of these JSON values, neither as characters nor as JSON escapes."""
    text = json.dumps(client_values, ensure_ascii=False).lower()
    unused = (mark for mark in _MARKS if _escape(mark) not in text)
    broken, end = next(unused, ""), next(unused, "")
    if not end:
        raise InvalidRequest("messages use too many different control characters", param="messages")
    return Marks(broken, end)


def _escape(mark: str) -> str:
    """The JSON escape of a mark."""
    return f"\\u{ord(mark):04x}"


class ClientText:
    """Breaks spellings of control tokens in client text."""

    def __init__(self, controls: Iterable[str], template: str) -> None:
        spellings = {*controls, *(tag for tags in THINK_TAGS.values() for tag in tags)}
        self._data = _Spellings(spellings, template)
        self._assistant = _Spellings({text for text in spellings if not _ASSISTANT_TAG.fullmatch(text)}, template)

    def protect_message(self, turn: Turn, mark: str) -> Turn:
        """The turn with marks in all fields except its role."""
        content = self._assistant if turn["role"] == "assistant" else self._data
        return {
            name: value if name == "role" else _mapped(content if name == "content" else self._data, value, mark)
            for name, value in turn.items()
        }

    def protect(self, value: Any, mark: str) -> Any:
        """A JSON value with marks in its strings and keys."""
        return _mapped(self._data, value, mark)


def _mapped(spellings: _Spellings, value: Any, mark: str) -> Any:
    if isinstance(value, str):
        return spellings.broken(value, mark)
    if isinstance(value, Mapping):
        return {
            name if name in _FIELDS else spellings.broken(name, mark): _mapped(spellings, child, mark)
            for name, child in value.items()
        }
    if isinstance(value, list):
        return [_mapped(spellings, child, mark) for child in value]
    return value


class _Spellings:
    """Spellings of control tokens, indexed for fast search in many strings."""

    def __init__(self, spellings: Iterable[str], template: str) -> None:
        # A spelling of one character cannot be broken; no tokenizer has such a control token.
        self._all = tuple(text for text in spellings if len(text) > 1)
        firsts = {text[0] for text in self._all}
        self._candidates = re.compile("|".join(_candidate(first, self._all) for first in firsts) or _NOTHING)
        self._first = _any_of(firsts)
        self._last = _any_of({text[-1] for text in self._all})
        self._heads = {text[i:] for text in self._all for i in range(1, len(text))}
        self._tails = {text[:i] for text in self._all for i in range(1, len(text))}
        self._longest = max(map(len, self._all), default=0)
        self._joined = "\0".join(self._all)
        self._template = template

    def broken(self, text: str, mark: str) -> str:
        """The text with a mark in every spelling, and wherever a neighbouring text could complete one."""
        inside = [match.end() for match in self._candidates.finditer(text) if text.startswith(self._all, match.start())]
        core = text.strip()
        start = text.index(core)
        edges = []
        if self._begins_spelling(core) or (core and not inside and core in self._joined):
            edges.append(start + len(core))
        if self._ends_spelling(core):
            edges.append(start)
        if edges and self._is_template_word(core):
            edges = []
        return _with_marks(text, inside + edges, mark) if inside or edges else text

    def _begins_spelling(self, core: str) -> bool:
        end = core[-self._longest :]
        return any(end[match.start() :] in self._tails for match in self._first.finditer(end))

    def _ends_spelling(self, core: str) -> bool:
        start = core[: self._longest]
        return any(start[: match.end()] in self._heads for match in self._last.finditer(start))

    def _is_template_word(self, core: str) -> bool:
        """Whether the template may compare with this word, as with JSON Schema types; a mark would break that."""
        return core.isalnum() and (f"'{core}'" in self._template or f'"{core}"' in self._template)


_NOTHING: Final = "(?!)"
"""A pattern that never matches."""


def _any_of(characters: set[str]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(map(re.escape, sorted(characters)))}]" if characters else _NOTHING)


def _candidate(first: str, spellings: Iterable[str]) -> str:
    """Pattern for the first character of a spelling, followed by one of the second characters."""
    seconds = _any_of({text[1] for text in spellings if text[0] == first})
    return f"{re.escape(first)}(?={seconds.pattern})"


def _with_marks(text: str, positions: list[int], mark: str) -> str:
    cuts = [0, *sorted(positions), len(text)]
    return mark.join(text[start:end] for start, end in pairwise(cuts))
