"""Calls as JSON objects between ``<tool_call>`` and ``</tool_call>`` (Hermes, Qwen2.5, Qwen3 and many others).

The JSON object alone decides where a call ends: tags inside its strings are text, and the closing tag may be missing.
After one opening tag there may be several calls, as a list or in sequence. Text that is not the JSON of a call becomes
content, including the opening tag, and parsing continues after it.

White space after a call is dropped. White space before a call is kept, unless there is no other content yet. In
reasoning it is kept only if more reasoning follows the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from typing_extensions import override

from detokenizer_svc.deltas import Content, Item
from detokenizer_svc.json_tokens import skip_space
from detokenizer_svc.json_value import ScanState
from detokenizer_svc.stage import FinishReason, ParserContext, TextStage
from detokenizer_svc.tags import WHITE_SPACE, TagSearch
from detokenizer_svc.tools.call_object import CallObject
from detokenizer_svc.tools.call_syntax import CallSyntax
from detokenizer_svc.tools.call_writer import CallWriter

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"

SYNTAX: Final = CallSyntax(
    opening=OPENING,
    before_name='\n{"name": "',
    before_arguments='", "arguments": ',
    closing=f"}}\n{CLOSING}",
    separator="\n",
)

_GAP: Final = re.compile(f"[{WHITE_SPACE},]*")
"""What may be between two calls after one opening tag."""


class Hermes(TextStage):
    """States: in content, after an opening tag, in a call, after a call."""

    markers = frozenset({OPENING, CLOSING})

    def __init__(self, context: ParserContext) -> None:
        self._search = TagSearch(OPENING, CLOSING)
        self._writer = CallWriter(context)
        self._state: Callable[[str, int, list[Item]], int] = self._read_content
        """Reads text from an index on, appends unambiguous items to the list, returns the index where it stopped."""
        self._call = CallObject()
        self._raw: list[str] = []
        """Text that becomes content if it turns out not to be a call."""
        self._in_list = False
        self._closing_due = False
        """A call was emitted since the last tag, and its closing tag has not come yet."""
        self._in_reasoning = context.in_reasoning
        self._has_text = False
        self._space = ""
        """White space before calls in reasoning."""

    @override
    def read(self, text: str) -> Iterable[Item]:
        out: list[Item] = []
        at = 0
        while at < len(text):
            at = self._state(text, at, out)
        return out

    @override
    def finish(self, reason: FinishReason) -> Iterable[Item]:
        out: list[Item] = []
        if self._state == self._read_gap:
            self._leave_gap(out)
        elif self._state != self._read_content:
            self._end_call(out, reason)
        self._emit_content(self._search.finish(), out)
        return out

    def _read_content(self, text: str, at: int, out: list[Item]) -> int:
        found = self._search.feed(text, at)
        self._emit_content(found.text, out)
        if found.tag == OPENING:
            self._begin_call(found.space, OPENING, out)
            self._in_list = self._closing_due = False
            self._state = self._read_opening
        elif found.tag == CLOSING and self._closing_due:
            self._closing_due = False
            self._search.skip_space()
        elif found.tag == CLOSING:
            self._emit_content(self._search.plain(found.space + CLOSING), out)
        return found.end

    def _read_opening(self, text: str, at: int, _out: list[Item]) -> int:
        """White space after the tag, and the bracket of a list if there is one."""
        end = skip_space(text, at)
        if end < len(text):
            self._in_list = text[end] == "["
            end += self._in_list
            self._state = self._read_call
        self._raw.append(text[at:end])
        return end

    def _begin_call(self, space: str, text: str, out: list[Item]) -> None:
        """Start to parse a call; ``space`` and ``text`` are before it, and become content if it is not a call."""
        if self._has_text and not self._in_reasoning:
            self._emit_content(space, out)
            space = ""
        self._call = CallObject()
        self._writer.begin()
        self._raw = [space, text]
        self._state = self._read_call

    def _read_call(self, text: str, at: int, out: list[Item]) -> int:
        end = self._call.feed(text, at)
        out += self._writer.progress(self._call)
        if not self._writer.emitted:
            self._raw.append(text[at:end])
        if self._call.state is not ScanState.INCOMPLETE:
            self._end_call(out)
        return end

    def _end_call(self, out: list[Item], reason: FinishReason | None = None) -> None:
        """Emit the rest of the call, or its text as content, once the scan or the output has ended."""
        out += self._writer.end(self._call, reason)
        if self._writer.emitted:
            self.num_failures += not self._call.usable and reason != "length"
            if self._has_text:
                self._space = self._space or self._raw[0]
            self._closing_due = True
            self._search.skip_space()
            rest = self._call.take_held().lstrip(WHITE_SPACE)
        else:
            self.num_failures += 1
            rest = "".join(self._raw)
        if rest:
            self._emit_content(self._search.plain(rest), out)
        self._raw = []
        is_object = self._call.usable or self._call.state is ScanState.COMPLETE
        self._state = self._read_gap if is_object else self._read_content

    def _read_gap(self, text: str, at: int, out: list[Item]) -> int:
        """After a call: another call may follow, or the end of the list."""
        end = _after_gap(text, at)
        self._raw.append(text[at:end])
        if end == len(text):
            return end
        if text[end] == "{":
            gap = "".join(self._raw)
            self._begin_call("", gap.lstrip(WHITE_SPACE) if self._closing_due else gap, out)
        elif text[end] == "]" and self._in_list and self._closing_due:
            self._state = self._read_content
            return end + 1
        else:
            self._leave_gap(out)
        return end

    def _leave_gap(self, out: list[Item]) -> None:
        self._state = self._read_content
        self._read_content("".join(self._raw), 0, out)

    def _emit_content(self, text: str, out: list[Item]) -> None:
        if text:
            out.append(Content(self._space + text))
            self._space = ""
            self._has_text = True


def _after_gap(text: str, at: int) -> int:
    match = _GAP.match(text, at)
    return match.end() if match else at
