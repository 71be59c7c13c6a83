"""Calls as JSON objects between ``<tool_call>`` and ``</tool_call>`` (Hermes, Qwen2.5, Qwen3 and many others).

The markers say that a call is meant, so any name is taken, declared or not. The object alone decides where a call
ends: tags inside its strings are text, and a closing tag may be missing. What is not the JSON of a call goes back to
the content, with its opening tag, and reading goes on behind it. White space next to tags of calls is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from typing_extensions import override

from detokenizer_svc.deltas import Content, Item
from detokenizer_svc.json_value import Reading
from detokenizer_svc.stage import FinishReason, ParserContext, TextStage
from detokenizer_svc.tags import TagSearch
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


class Hermes(TextStage):
    """Between calls a tag is sought; inside, a call is scanned and its raw text kept until it is given."""

    markers = frozenset({OPENING, CLOSING})

    def __init__(self, context: ParserContext) -> None:
        self._search = TagSearch(OPENING, CLOSING)
        self._writer = CallWriter(context)
        self._call: CallObject | None = None
        self._raw: list[str] = []
        self._closing_due = False
        """A call has ended and its closing tag has not come."""

    @override
    def read(self, text: str) -> Iterable[Item]:
        out: list[Item] = []
        at = 0
        while at < len(text):
            at = self._read_content(text, at, out) if self._call is None else self._read_call(self._call, text, at, out)
        return out

    @override
    def finish(self, reason: FinishReason) -> Iterable[Item]:
        out: list[Item] = []
        if self._call is not None:
            self._end_call(self._call, out)
        out += _content(self._search.finish())
        return out

    def _read_content(self, text: str, at: int, out: list[Item]) -> int:
        found = self._search.feed(text, at)
        out += _content(found.text)
        if found.tag == OPENING:
            self._call = CallObject()
            self._writer.begin()
            self._raw = [found.space, OPENING]
        elif found.tag == CLOSING and self._closing_due:
            self._closing_due = False
            self._search.skip_space()
        elif found.tag == CLOSING:
            out += _content(self._search.plain(found.space + CLOSING))
        return found.end

    def _read_call(self, call: CallObject, text: str, at: int, out: list[Item]) -> int:
        end = call.feed(text, at)
        out += self._writer.progress(call)
        if not self._writer.given:
            self._raw.append(text[at:end])
        if call.reading is not Reading.GOING_ON:
            self._end_call(call, out)
        return end

    def _end_call(self, call: CallObject, out: list[Item]) -> None:
        """Give the call, or what stands in its place, if the scan is over or no more text comes."""
        self._call = None
        if self._writer.can_give(call):
            out += self._writer.whole(call)
        else:
            self.num_failures += 1
            out += () if self._writer.given else self._back_to_content()
        if self._writer.given:
            self._closing_due = True
            self._search.skip_space()
        self._raw.clear()

    def _back_to_content(self) -> Iterable[Item]:
        return _content(self._search.plain("".join(self._raw)))


def _content(text: str) -> Iterable[Item]:
    return (Content(text),) if text else ()
