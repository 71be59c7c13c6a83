"""Grammars of output with tool calls, in llguidance's Lark dialect, as engine.proto expects.

The format of a call comes from the detokenizer (``CallSyntax``), the arguments from the schemas of the tools. Each
``%json`` rule takes one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.generation.request import Tool
from gateway.policy.limits import MAX_TOOL_CALLS

_ANY_OBJECT = '{"type":"object"}'
_NO_ARGUMENTS = '{"type":"object","properties":{},"additionalProperties":false}'


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """The parts of a tool call in one format; see detokenizer.proto."""

    opening: str
    before_name: str
    before_arguments: str
    closing: str
    separator: str
    special_tokens: tuple[tuple[str, int], ...] = ()
    """Text and id of each."""


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """Calls of ``tools``: one, or with ``several`` any number in a row."""

    syntax: CallSyntax
    tools: Sequence[Tool]
    several: bool

    def only_calls(self) -> str:
        """Only calls: at least one, and at most as many as a client can send back."""
        return _grammar("start: calls", *self._calls(), *self._call())

    def calls_or_json(self, schema_json: str | None) -> str:
        """Calls, or a JSON value of a schema; without a schema, any object."""
        answer = f"answer: %json {schema_json or _ANY_OBJECT}"
        return _grammar("start: calls | answer", *self._calls(), *self._call(), answer)

    def calls_in_text(self) -> str:
        """Any text with calls in it; the opening of a call must be followed by a valid call."""
        opening = self.syntax.opening
        start = "start: (until_call call)* text" if self.several else "start: until_call call | text"
        ways = ["until_spelled", f"text {self._spelled(opening)}"] if self._has_special(opening) else ["until_spelled"]
        until_call = f"until_call: {' | '.join(ways)}"
        until_spelled = rf"until_spelled[lazy]: /(.|\n)*{_escaped(opening)}/"
        return _grammar(start, until_call, until_spelled, r"text: /(.|\n)*/", *self._call())

    def _calls(self) -> Iterator[str]:
        opening = self._spelled(self.syntax.opening)
        more = (
            f" ({self._spelled(self.syntax.separator + self.syntax.opening)} call){{0,{MAX_TOOL_CALLS - 1}}}"
            if self.several
            else ""
        )
        yield f"calls: {opening} call{more}"

    def _call(self) -> Iterator[str]:
        """A call after its opening."""
        functions = " | ".join(f"function_{number}" for number in range(len(self.tools)))
        yield f"call: {self._spelled(self.syntax.before_name)} ({functions}) {self._spelled(self.syntax.closing)}"
        before_arguments = self._spelled(self.syntax.before_arguments)
        for number, tool in enumerate(self.tools):
            yield f"function_{number}: {_quoted(tool.name)} {before_arguments} arguments_{number}"
            yield f"arguments_{number}: %json {_arguments(tool)}"

    def _spelled(self, text: str) -> str:
        """A text of the format, with special tokens by id where the vocabulary has them."""
        token_ids = dict(self.syntax.special_tokens)
        if not self._has_special(text):
            return _quoted(text)
        pieces = re.split(f"({'|'.join(map(re.escape, token_ids))})", text)
        return " ".join(
            f"<[{token_ids[piece]}]>" if piece in token_ids else _quoted(piece) for piece in pieces if piece
        )

    def _has_special(self, text: str) -> bool:
        return any(spelling in text for spelling, _ in self.syntax.special_tokens)


def _arguments(tool: Tool) -> str:
    """The schema of a tool's arguments, always an object. A tool without parameters takes no arguments."""
    schema = json.loads(tool.parameters_json or "{}")
    if not schema:
        return _NO_ARGUMENTS
    return json.dumps({"type": "object"} | schema, ensure_ascii=False)


def _grammar(*rules: str) -> str:
    return "\n".join(rules) + "\n"


def _quoted(text: str) -> str:
    """A text as a Lark string, which has the syntax of a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    """A text inside a Lark regular expression, which must be on one line."""
    return re.escape(text).replace("\\\n", r"\n").replace("/", r"\/")
