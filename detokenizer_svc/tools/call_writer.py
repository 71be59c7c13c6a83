"""When a call that is being read is given to the client, and in which pieces: id and name first, then arguments."""

from __future__ import annotations

from collections.abc import Iterable

from detokenizer_svc.deltas import ToolCallPiece
from detokenizer_svc.stage import ParserContext
from detokenizer_svc.tools.call_object import CallObject


class CallWriter:
    """Numbers the calls of a choice.

    A call is given when it is whole, so that nothing is ever called that the model did not say in full. One with long
    arguments is given earlier, see ``ParserContext.stream_arguments_after``; if it breaks then, its arguments stay an
    open object, which no client can take for a whole one.
    """

    def __init__(self, context: ParserContext) -> None:
        self._context = context
        self._declared = frozenset(tool.name for tool in context.tools)
        self._num_calls = 0
        self.given = False
        """Whether the present call has been given, in part or in whole."""

    def begin(self) -> None:
        """A call begins to be read."""
        self.given = False

    def can_give(self, call: CallObject) -> bool:
        """Whether the call is whole and one that counts."""
        return call.usable and self._counts(call)

    def progress(self, call: CallObject) -> Iterable[ToolCallPiece]:
        """What is given of a call that may not be whole. To be asked after each piece of text, also the last."""
        limit = self._context.stream_arguments_after
        long_enough = limit is not None and call.num_argument_characters > limit
        if self.given or (long_enough and call.name is not None and self._counts(call)):
            return self.whole(call)
        return ()

    def whole(self, call: CallObject) -> Iterable[ToolCallPiece]:
        """All that is known of the call and has not been given."""
        if not self.given:
            self.given = True
            yield ToolCallPiece(self._num_calls, id=self._context.new_call_id(), name=call.name or "")
            self._num_calls += 1
        if arguments := call.take_arguments():
            yield ToolCallPiece(self._num_calls - 1, arguments=arguments)

    def _counts(self, call: CallObject) -> bool:
        return not self._context.declared_only or call.name in self._declared
