"""One request as its handler on the server sees it."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from google.protobuf.message import Message

from svclib.session.inbox import Inbox
from svclib.session.opening import Opening
from svclib.session.outbox import Outbox

OpenT = TypeVar("OpenT", bound=Message)
InputT = TypeVar("InputT", bound=Message)
EventT = TypeVar("EventT", bound=Message)


class Call(Generic[OpenT, InputT, EventT]):
    """One request: the opening message, an async iterator of inputs, and ``emit``."""

    def __init__(
        self, request_id: int, request: OpenT, opening: Opening, outbox: Outbox, inputs: Inbox[InputT]
    ) -> None:
        self.request = request
        self.opening = opening
        self.inputs = inputs
        self._id = request_id
        self._outbox = outbox

    def emit(self, event: EventT) -> None:
        """Send an event. Never blocks. Only on the event loop's thread, and only until the handler returns."""
        self._outbox.merge(self._id, event)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> InputT:
        return await self.inputs.get()
