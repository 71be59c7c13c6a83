"""The client's end of a session: opens requests and reads their events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Generic, Self, TypeVar

import structlog
from google.protobuf.message import Message

from svclib.errors import DeadlineExceeded, ServiceError
from svclib.session.client_connection import ClientConnection, SessionMethod
from svclib.session.inbox import Allowance, Inbox
from svclib.session.limits import DEFAULT_LIMITS, SessionLimits
from svclib.session.opening import Opening

OpenT = TypeVar("OpenT", bound=Message)
InputT = TypeVar("InputT", bound=Message)
EventT = TypeVar("EventT", bound=Message)

log = structlog.get_logger(__name__)


class Stream(Generic[OpenT, InputT, EventT]):
    """One request as the client sees it: an async context manager, and inside it an async iterator of events.

    Iteration ends after the server's last event. It raises the server's ``ServiceError``, ``PeerLost`` when the session
    breaks, ``DeadlineExceeded``, or ``Overloaded`` when events are read too slowly. Leaving the context before the end
    cancels the request.
    """

    def __init__(self, client: SessionClient[OpenT, InputT, EventT], request: OpenT, opening: Opening) -> None:
        self._client = client
        self._request = request
        self._opening = opening
        self._inbox: Inbox[EventT] = Inbox(client._allowance, self._overflowed)
        self._deadline: asyncio.TimerHandle | None = None
        self._on_overflow: Callable[[ServiceError], None] | None = None
        self.id = 0

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def start(self) -> None:
        """Send the request. Must be followed by ``leave``."""
        self.id = self._client._register(self, self._request, self._opening)
        if self._opening.timeout is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._opening.timeout, self._on_deadline)

    def leave(self) -> None:
        """Cancel the request unless it is over."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._inbox.drop()
        self._client._leave(self)

    def send(self, message: InputT) -> None:
        """Send an input to the running request. Never blocks; has no effect once the request is over."""
        if not self._inbox.ended:
            self._client._send(self.id, message)

    def on_overflow(self, callback: Callable[[ServiceError], None]) -> None:
        """Call back when the request ends because its events were read too slowly: its reader may be blocked elsewhere
        and never read the error."""
        self._on_overflow = callback

    def watch(self, on_update: Callable[[], None]) -> None:
        """See ``Inbox.watch``: for a reader that does not iterate."""
        self._inbox.watch(on_update)

    def take(self) -> EventT | None:
        """The waiting events, merged; None if there are none. Raises the request's error after the last event."""
        return self._inbox.take()

    @property
    def is_over(self) -> bool:
        """The request has ended without an error, and every event was taken."""
        return self._inbox.is_over

    @property
    def has_more(self) -> bool:
        """The last ``take`` did not return everything that waits, or an error is left."""
        return self._inbox.has_more

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventT:
        return await self._inbox.get()

    def _overflowed(self) -> None:
        log.warning("request ended: read too slowly", peer=self._client.peer, request_id=self._opening.request_id)
        self._client._leave(self)
        if self._on_overflow is not None and self._inbox.error is not None:
            self._on_overflow(self._inbox.error)

    def _on_deadline(self) -> None:
        self._inbox.end(DeadlineExceeded(f"the {self._client.peer} did not finish before the request's deadline"))
        self._client._leave(self)


class SessionClient(Generic[OpenT, InputT, EventT]):
    """The client's end of the session with one replica. Connects when a request is opened, and again after a loss.

    ``method`` is the stub's ``Session``, ``client_frame`` the class of the frames it takes, ``peer`` the name used in
    error messages.
    """

    def __init__(
        self,
        method: SessionMethod,
        client_frame: type[Message],
        *,
        peer: str,
        limits: SessionLimits = DEFAULT_LIMITS,
    ) -> None:
        self.peer = peer
        self._limits = limits
        self._allowance = Allowance(limits)
        self._method = method
        self._client_frame = client_frame
        self._ids = count(1)
        self._connection: ClientConnection | None = None

    def open(self, request: OpenT, opening: Opening) -> Stream[OpenT, InputT, EventT]:
        """A request, sent when its context is entered."""
        return Stream(self, request, opening)

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return len(self._connection.streams) if self._connection else 0

    async def close(self) -> None:
        """End the session; its open requests end with ``PeerLost``."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def _register(self, stream: Stream[OpenT, InputT, EventT], request: OpenT, opening: Opening) -> int:
        if self._connection is None or self._connection.lost:
            self._connection = ClientConnection(self._method, self._client_frame, self.peer, self._limits)
        request_id = next(self._ids)
        self._connection.open(request_id, stream._inbox, request, opening)
        return request_id

    def _send(self, request_id: int, message: InputT) -> None:
        if self._connection is not None and request_id in self._connection.streams:
            self._connection.outbox.merge(request_id, message)

    def _leave(self, stream: Stream[OpenT, InputT, EventT]) -> None:
        if self._connection is not None:
            self._connection.leave(stream.id)
