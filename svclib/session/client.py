"""The client's end: requests are opened here, and their events read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from svclib.errors import DeadlineExceeded, PeerLost, ServiceError, Unavailable
from svclib.session.inbox import Allowance, Inbox
from svclib.session.limits import DEFAULT_LIMITS, SessionLimits
from svclib.session.opening import Opening
from svclib.session.outbox import Outbox
from svclib.status import from_failure

OpenT = TypeVar("OpenT", bound=Message)
InputT = TypeVar("InputT", bound=Message)
EventT = TypeVar("EventT", bound=Message)

log = structlog.get_logger(__name__)


class Stream(Generic[OpenT, InputT, EventT]):
    """One request, seen by the client: an async context manager, and inside it an async iterator of events.

    Iteration ends when the server has said everything. It raises the server's ``ServiceError``, ``PeerLost`` when the
    session breaks, or ``DeadlineExceeded``. Leaving the context before the end cancels the request.
    """

    def __init__(self, client: SessionClient[OpenT, InputT, EventT], request: OpenT, opening: Opening) -> None:
        self._client = client
        self._request = request
        self._opening = opening
        self._inbox: Inbox[EventT] = Inbox(client._allowance, self._on_overflow)
        self._deadline: asyncio.TimerHandle | None = None
        self._on_slow: Callable[[ServiceError], None] | None = None
        self.id = 0

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def start(self) -> None:
        """Send the request. To be followed by ``leave``, whatever happens."""
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
        """Say something to the running request. Never blocks; has no effect once the request is over."""
        if not self._inbox.ended:
            self._client._send(self.id, message)

    def when_too_slow(self, tell: Callable[[ServiceError], None]) -> None:
        """Tell of the request's end, should it come because what was said was not read: its reader may be held up by
        something else and not come back."""
        self._on_slow = tell

    def watch(self, on_news: Callable[[], None]) -> None:
        """See ``Inbox.watch``: for a reader that does not iterate."""
        self._inbox.watch(on_news)

    def take(self) -> EventT | None:
        """What waits; None while there is nothing. Raises the error of the end, after the last event."""
        return self._inbox.take()

    @property
    def is_over(self) -> bool:
        """It has ended without an error, and every event was taken."""
        return self._inbox.is_over

    @property
    def has_more(self) -> bool:
        """More waits than the last ``take`` gave, or an error."""
        return self._inbox.has_more

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventT:
        return await self._inbox.get()

    def _on_overflow(self) -> None:
        log.warning("request read too slowly", peer=self._client.peer, request_id=self._opening.request_id)
        self._client._leave(self)
        if self._on_slow is not None and self._inbox.error is not None:
            self._on_slow(self._inbox.error)

    def _on_deadline(self) -> None:
        self._inbox.end(DeadlineExceeded(f"the {self._client.peer} did not finish in time"))
        self._client._leave(self)


class SessionClient(Generic[OpenT, InputT, EventT]):
    """The client's end of a session with one replica. Connects when a request is opened, again after a loss.

    ``method`` is the stub's ``Session``, ``client_frame`` the class of the frames it takes, ``peer`` the name used in
    error messages.
    """

    def __init__(
        self,
        method: Callable[[AsyncIterator[Any]], Any],
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
        self._connection: _Connection | None = None

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
            self._connection = _Connection(self._method, self._client_frame, self.peer, self._limits)
        request_id = next(self._ids)
        self._connection.open(request_id, stream._inbox, request, opening)
        return request_id

    def _send(self, request_id: int, message: InputT) -> None:
        if self._connection is not None and request_id in self._connection.streams:
            self._connection.outbox.merge(request_id, message)

    def _leave(self, stream: Stream[OpenT, InputT, EventT]) -> None:
        if self._connection is not None:
            self._connection.leave(stream.id)


class _Connection:
    """One run of a session, from connecting to its loss."""

    def __init__(
        self,
        method: Callable[[AsyncIterator[Any]], Any],
        client_frame: type[Message],
        peer: str,
        limits: SessionLimits,
    ) -> None:
        self.streams: dict[int, Inbox[Any]] = {}
        self.outbox = Outbox(client_frame, "input", max_bytes=limits.unsent, on_overflow=self._on_overflow)
        self.lost = False
        self._peer = peer
        self._reached = False
        self._call = method(self.outbox.frames())
        self._reader = asyncio.create_task(self._read(), name=f"session with {peer}")

    def open(self, request_id: int, inbox: Inbox[Any], request: Message, opening: Opening) -> None:
        self.streams[request_id] = inbox
        entry = self.outbox.add(request_id)
        entry.open.CopyFrom(request)
        entry.open.SetInParent()
        entry.opening.CopyFrom(opening.to_wire())
        self.outbox.count_bytes(entry)

    def leave(self, request_id: int) -> None:
        """The reader is gone; tell the server unless it has had its last word."""
        if self.streams.pop(request_id, None) is not None and not self.lost:
            self.outbox.add(request_id).cancel.SetInParent()

    def _on_overflow(self) -> None:
        log.warning("the peer does not read", peer=self._peer)
        self._reader.cancel()

    async def close(self) -> None:
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader

    async def _read(self) -> None:
        try:
            async for frame in self._call:
                self._reached = True
                for entry in frame.entries:
                    self._dispatch(entry)
        except grpc.aio.AioRpcError as error:
            log.warning("session lost", peer=self._peer, code=error.code().name, details=error.details())
        finally:
            self._lose()

    def _dispatch(self, entry: Any) -> None:
        inbox = self.streams.get(entry.id)
        if inbox is None:
            return
        match entry.WhichOneof("body"):
            case "event":
                inbox.put(entry.event)
            case "end":
                inbox.end()
                del self.streams[entry.id]
            case "failure":
                inbox.end(from_failure(entry.failure))
                del self.streams[entry.id]

    def _lose(self) -> None:
        self.lost = True
        self.outbox.close()
        self._call.cancel()
        for inbox in self.streams.values():
            inbox.end(self._loss())
        self.streams.clear()

    def _loss(self) -> ServiceError:
        if self._reached:
            return PeerLost(f"the {self._peer} went away", retry_after=1.0)
        return Unavailable(f"the {self._peer} is not reachable", retry_after=1.0)
