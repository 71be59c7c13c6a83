"""When a call that is being read is given to the client, and in which pieces: id and name first, then arguments."""

from __future__ import annotations

from collections.abc import Iterable

from detokenizer_svc.deltas import ToolCallPiece
from detokenizer_svc.stage import FinishReason, ParserContext
from detokenizer_svc.tools.call_object import CallObject


class CallWriter:
    """Numbers the calls of a choice.

    A call is given as it is written, from where its name is known, it counts, and its arguments begin as an object.
    What is settled of the arguments is given at once. If they break later they are closed where they were settled
    last, so that a client always gets one object; only an output that is cut by its length leaves it open.

    With ``ParserContext.in_thinking`` a call is given when it is whole, or not at all.
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

    def progress(self, call: CallObject, *, is_over: bool = False) -> Iterable[ToolCallPiece]:
        """What more is given of a call. To be asked after each piece of text, also the last, and when it is over."""
        if call.name is None or call.arguments is None or not self._counts(call.name):
            return
        if self._context.in_thinking and not (is_over and call.usable):
            return
        if not self.given:
            self.given = True
            yield ToolCallPiece(self._num_calls, id=self._context.new_call_id(), name=call.name)
            self._num_calls += 1
        yield from self._piece(call.arguments.take())

    def end(self, call: CallObject, reason: FinishReason | None = None) -> Iterable[ToolCallPiece]:
        """The rest of a call that is over. ``reason``: the output ends with it; None: it is whole, or broke."""
        yield from self.progress(call, is_over=True)
        arguments = call.arguments
        if self.given and arguments is not None and not call.has_all_arguments:
            yield from self._piece(arguments.take_held() if reason == "length" else arguments.closing)

    def _piece(self, arguments: str) -> Iterable[ToolCallPiece]:
        if arguments:
            yield ToolCallPiece(self._num_calls - 1, arguments=arguments)

    def _counts(self, name: str) -> bool:
        """Only declared tools do. Where none is declared any name does, but thinking is no place to try one."""
        return name in self._declared or not (self._declared or self._context.in_thinking)
