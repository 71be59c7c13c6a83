"""The output of one choice, from token ids to deltas: the whole chain. Decides the finish reason and counts tokens.

    token ids -> bytes -> text -> reasoning -> stop strings -> tool calls -> deltas

Stop strings are matched in the text after reasoning, before tool calls are parsed.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from detokenizer_svc.deltas import Content, Delta, Item, Marker, ReasoningEnd, ToolCallPiece, coalesce
from detokenizer_svc.incremental import TokenDecoder
from detokenizer_svc.parsers import make_parsers
from detokenizer_svc.positions import TokenPositions
from detokenizer_svc.stage import Chain, FinishReason, ParserContext, ReasoningState, Stage, Tool
from detokenizer_svc.stop import check_stop_strings
from detokenizer_svc.stop_stage import StopStage
from detokenizer_svc.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """How to format one choice; the fields of ``FormatRequest``."""

    prompt_tail_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    reasoning_parser: str = ""
    reasoning_state: ReasoningState = ReasoningState.UNDECIDED
    tool_parser: str = ""
    tools: tuple[Tool, ...] = ()
    skip_special_tokens: bool = True
    min_tokens: int = 0
    named_function: str = ""
    calls_after_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class EngineEnd:
    """The engine has ended the choice. ``by_token``: the last token is a stop token, which is not part of the text."""

    reason: FinishReason
    by_token: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How the choice ended, for the client."""

    finish_reason: Literal["stop", "length", "tool_calls"]
    matched_stop: str | None
    completion_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class Formatted:
    """New output. ``num_tokens``: how many of the tokens just fed belong to the choice: all, or up to a stop string."""

    deltas: list[Delta]
    num_tokens: int
    ending: Ending | None = None


class Formatter:
    """Fed with tokens until it returns an ``Ending``. The joined output does not depend on how the tokens are batched.

    Raises ``InvalidRequest`` for an unknown parser and for invalid stop strings.
    """

    def __init__(self, vocabulary: Vocabulary, spec: FormatSpec, context: ParserContext | None = None) -> None:
        check_stop_strings(spec.stop)
        context = replace(context or ParserContext(), reasoning_state=spec.reasoning_state, tools=spec.tools)
        reasoning, calls = make_parsers(
            spec.reasoning_parser, spec.tool_parser, context, calls_in_reasoning=not spec.calls_after_reasoning
        )
        self._positions = TokenPositions() if spec.stop or spec.reasoning_parser else None
        markers = Chain([*([reasoning] if reasoning else []), *calls]).markers
        special = _special_in_stop(vocabulary, spec, markers)
        self._stop = StopStage(reasoning, spec.stop, special, self._min_characters) if spec.stop else None
        first: Stage | None = self._stop or reasoning
        self._until_stop = Chain([first] if first else [])
        self._calls = Chain(calls)
        self._decoder = TokenDecoder(
            vocabulary,
            skip_special_tokens=spec.skip_special_tokens,
            prompt_tail_ids=spec.prompt_tail_ids,
            markers=markers,
            hidden=[marker.spelling for marker in special if marker.hidden],
            positions=self._positions,
        )
        self._skip_special_tokens = spec.skip_special_tokens
        self._min_tokens = spec.min_tokens
        self._finish_with_tool_calls = not spec.named_function
        self._num_tokens = 0
        self._has_calls = False

    @property
    def num_parse_failures(self) -> int:
        """Number of malformed tool calls, which became content."""
        return self._until_stop.num_failures + self._calls.num_failures

    def feed(self, token_ids: Sequence[int], end: EngineEnd | None = None) -> Formatted:
        """The new output; with ``end``, also everything that was held back. Raises ``UnknownToken``."""
        num_before = self._num_tokens
        items = self._decode(token_ids, end)
        items = self._until_stop.finish(items, end.reason) if end else self._until_stop.feed(items)
        self._num_tokens = self._count(num_before + len(token_ids))
        reason = self._reason(end)
        items = self._calls.finish(items, reason) if reason else self._calls.feed(items)
        deltas = self._deltas(items)
        ending = self._ending(reason) if reason else None
        return Formatted(deltas, self._num_tokens - num_before, ending)

    def _decode(self, token_ids: Sequence[int], end: EngineEnd | None) -> list[Item]:
        if end is None:
            return self._decoder.feed(token_ids)
        text_ids = token_ids[:-1] if end.by_token else token_ids
        return self._decoder.feed(text_ids) + self._decoder.finish()

    def _count(self, num_tokens: int) -> int:
        """How many tokens belong to the choice: those up to the end of the stop string."""
        if self._matched is None:
            return num_tokens
        assert self._positions is not None
        assert self._stop is not None
        return self._positions.tokens_until(self._stop.num_characters)

    @property
    def _matched(self) -> str | None:
        return self._stop.matched if self._stop else None

    def _min_characters(self) -> int:
        """Length of the text of the first ``min_tokens`` tokens; a stop string that ends within it does not match."""
        if self._positions is None or not self._min_tokens:
            return 0
        length = self._positions.characters_after(self._min_tokens)
        return sys.maxsize if length is None else length

    def _reason(self, end: EngineEnd | None) -> FinishReason | None:
        if self._matched is not None:
            return "stop"
        return end.reason if end else None

    def _deltas(self, items: Iterable[Item]) -> list[Delta]:
        deltas: list[Delta] = []
        for item in items:
            if isinstance(item, Content):
                deltas += (item,) if item.text else ()
            elif isinstance(item, Marker):
                # A special token that no parser consumed is text if special tokens are not skipped.
                deltas += () if self._skip_special_tokens else (Content(item.spelling),)
            elif not isinstance(item, ReasoningEnd):
                self._has_calls = self._has_calls or isinstance(item, ToolCallPiece)
                deltas.append(item)
        return deltas if len(deltas) < 2 else coalesce(deltas)

    def _ending(self, reason: FinishReason) -> Ending:
        called = reason == "stop" and self._has_calls and self._finish_with_tool_calls
        return Ending("tool_calls" if called else reason, self._matched, self._num_tokens, self._num_reasoning_tokens())

    def _num_reasoning_tokens(self) -> int:
        if self._positions is None:
            return 0
        length = (
            self._stop.num_characters
            if self._stop and self._stop.matched is not None
            else self._positions.num_characters
        )
        return self._positions.tokens_within(self._until_stop.reasoning_spans + self._calls.reasoning_spans, length)


def _special_in_stop(vocabulary: Vocabulary, spec: FormatSpec, markers: Collection[str]) -> list[Marker]:
    """The special tokens spelled in stop strings; if special tokens are text, only those that are markers."""
    within = vocabulary.special_within(spec.stop) if spec.stop else set()
    return [
        Marker(spelling, hidden=spelling not in markers)
        for spelling in within
        if spec.skip_special_tokens or spelling in markers
    ]
