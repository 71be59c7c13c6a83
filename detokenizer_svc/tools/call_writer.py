"""Streams a call while it is parsed: id and name first, then arguments."""

from __future__ import annotations

from collections.abc import Iterable

from detokenizer_svc.deltas import ToolCallPiece
from detokenizer_svc.stage import FinishReason, ParserContext
from detokenizer_svc.tools.call_object import CallObject


class CallWriter:
    """Numbers the calls of a choice and streams them.

    Streaming starts once the name is known and declared and the arguments start as an object. Settled arguments are
    emitted at once. If they become invalid later, they are closed after the last settled text, so that a client always
    gets one JSON object; only with the finish reason ``length`` they stay open.

    With ``ParserContext.in_reasoning``, a call is emitted only once it is complete.
    """

    def __init__(self, context: ParserContext) -> None:
        self._context = context
        self._declared = frozenset(tool.name for tool in context.tools)
        self._num_calls = 0
        self.emitted = False
        """Whether the current call has been emitted, at least in part."""

    def begin(self) -> None:
        """Start a new call."""
        self.emitted = False

    def progress(self, call: CallObject, *, has_ended: bool = False) -> Iterable[ToolCallPiece]:
        """The next pieces of a call. Called after each piece of text, and when the call has ended."""
        if call.name is None or call.arguments is None or not self._counts(call.name):
            return
        if self._context.in_reasoning and not (has_ended and call.usable):
            return
        if not self.emitted:
            self.emitted = True
            yield ToolCallPiece(self._num_calls, id=self._context.new_call_id(), name=call.name)
            self._num_calls += 1
        yield from self._piece(call.arguments.take())

    def end(self, call: CallObject, reason: FinishReason | None = None) -> Iterable[ToolCallPiece]:
        """The last pieces of a call. ``reason``: the output has ended; None: the call is complete or invalid."""
        yield from self.progress(call, has_ended=True)
        arguments = call.arguments
        if self.emitted and arguments is not None and not call.has_all_arguments:
            yield from self._piece(arguments.take_held() if reason == "length" else arguments.closing)

    def _piece(self, arguments: str) -> Iterable[ToolCallPiece]:
        if arguments:
            yield ToolCallPiece(self._num_calls - 1, arguments=arguments)

    def _counts(self, name: str) -> bool:
        """Whether a call of this name is a tool call: a declared tool; any name without tools, except in reasoning."""
        return name in self._declared or not (self._declared or self._context.in_reasoning)
