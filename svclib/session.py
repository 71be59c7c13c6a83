"""Many requests over one long-lived bidirectional stream.

Client and server speak in frames, and each frame is a list of entries: a writer puts everything that waits into its
next frame, so one engine step is one message however many sequences it moved. While a frame is being written, further
events of one request are merged into one entry (protobuf ``MergeFrom``: lists are joined), so a slow reader costs
longer entries and not more of them. A frame that has grown large is followed by another, so that none is ever too large
for the transport.

The life of a request, seen from either end:

    open -> any number of events and inputs -> exactly one of: end | failure | cancel | the session is lost

An entry that arrives after that is dropped: it crossed with the other end's last word. This module knows nothing of
what the requests are about; the frame classes are those of engine.proto and detokenizer.proto, which share their shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from protos.v1 import common_pb2
from svclib.errors import DeadlineExceeded, InvalidRequest, Overloaded, PeerLost, ServiceError, Unavailable, public
from svclib.status import from_failure, to_failure

MAX_OPEN_REQUESTS: Final = 8192
_FRAME_ENTRIES: Final = 1024
_FRAME_BYTES: Final = 4 * 1024 * 1024

OpenT = TypeVar("OpenT", bound=Message)
InputT = TypeVar("InputT", bound=Message)
EventT = TypeVar("EventT", bound=Message)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """What travels beside a request. ``timeout`` is in seconds from now, None for no deadline."""

    request_id: str
    timeout: float | None = None
    traceparent: str = ""

    def to_wire(self) -> common_pb2.Opening:
        return common_pb2.Opening(
            request_id=self.request_id, timeout_seconds=self.timeout, traceparent=self.traceparent
        )

    @classmethod
    def from_wire(cls, message: common_pb2.Opening) -> Self:
        timeout = message.timeout_seconds if message.HasField("timeout_seconds") else None
        return cls(message.request_id, timeout, message.traceparent)


class _Outbox:
    """Entries on their way out, gathered into frames."""

    def __init__(self, frame_class: type[Any], mergeable: str) -> None:
        self._frame_class = frame_class
        self._mergeable = mergeable
        self._frames: list[Any] = []
        self._bytes = 0
        self._last: dict[int, Any] = {}
        self._wakeup = asyncio.Event()
        self._closed = False

    def add(self, request_id: int) -> Any:
        """A new entry for the caller to fill before the event loop runs on."""
        if not self._frames or len(self._frames[-1].entries) >= _FRAME_ENTRIES or self._bytes >= _FRAME_BYTES:
            self._frames.append(self._frame_class())
            self._bytes = 0
            self._last.clear()
        entry = self._frames[-1].entries.add()
        entry.id = request_id
        self._last.pop(request_id, None)
        self._wakeup.set()
        return entry

    def count_bytes(self, entry: Message) -> None:
        """Take the size of a large entry into account when frames are cut."""
        self._bytes += entry.ByteSize()

    def merge(self, request_id: int, message: Message) -> None:
        """Add a message, to the request's waiting entry if nothing came between."""
        entry = self._last.get(request_id)
        if entry is None or self._bytes >= _FRAME_BYTES:
            entry = self.add(request_id)
            self._last[request_id] = entry
        self._bytes += message.ByteSize()
        target = getattr(entry, self._mergeable)
        target.MergeFrom(message)
        # An empty message sets no field by itself, yet it was sent.
        target.SetInParent()

    def close(self) -> None:
        """Let ``frames`` end once everything is written."""
        self._closed = True
        self._wakeup.set()

    async def frames(self) -> AsyncIterator[Any]:
        """The frames, as the transport asks for them."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if not self._frames:
                    self._last.clear()
                yield frame
            if self._closed:
                return
            self._wakeup.clear()
            await self._wakeup.wait()


class _Inbox(Generic[EventT]):
    """Messages of one request that its reader has not taken yet, merged into one, and how it ended."""

    def __init__(self) -> None:
        self._waiting: EventT | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self.ended = False
        self.error: ServiceError | None = None

    def put(self, message: EventT) -> None:
        if self.ended:
            return
        if self._waiting is None:
            self._waiting = message
        else:
            self._waiting.MergeFrom(message)
        self._wake()

    def end(self, error: ServiceError | None = None) -> None:
        """The last word; only the first one counts."""
        if not self.ended:
            self.ended, self.error = True, error
            self._wake()

    async def get(self) -> EventT:
        """The next message. Raises ``StopAsyncIteration`` or the error after the last one."""
        while self._waiting is None:
            if self.ended:
                if self.error is not None:
                    raise self.error
                raise StopAsyncIteration
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        message, self._waiting = self._waiting, None
        return message

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


class Stream(Generic[OpenT, InputT, EventT]):
    """One request, seen by the client: an async context manager, and inside it an async iterator of events.

    Iteration ends when the server has said everything. It raises the server's ``ServiceError``, ``PeerLost`` when the
    session breaks, or ``DeadlineExceeded``. Leaving the context before the end cancels the request.
    """

    def __init__(self, client: SessionClient[OpenT, InputT, EventT], request: OpenT, opening: Opening) -> None:
        self._client = client
        self._request = request
        self._opening = opening
        self._inbox: _Inbox[EventT] = _Inbox()
        self._deadline: asyncio.TimerHandle | None = None
        self.id = 0

    async def __aenter__(self) -> Self:
        self.id = self._client._register(self, self._request, self._opening)
        if self._opening.timeout is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._opening.timeout, self._on_deadline)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._client._leave(self)

    def send(self, message: InputT) -> None:
        """Say something to the running request. Never blocks; has no effect once the request is over."""
        if not self._inbox.ended:
            self._client._send(self.id, message)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventT:
        return await self._inbox.get()

    def _on_deadline(self) -> None:
        self._inbox.end(DeadlineExceeded(f"the {self._client.peer} did not finish in time"))
        self._client._leave(self)


class SessionClient(Generic[OpenT, InputT, EventT]):
    """The client's end of a session with one replica. Connects when a request is opened, again after a loss.

    ``method`` is the stub's ``Session``, ``client_frame`` the class of the frames it takes, ``peer`` the name used in
    error messages.
    """

    def __init__(self, method: Callable[[AsyncIterator[Any]], Any], client_frame: type[Message], *, peer: str) -> None:
        self.peer = peer
        self._method = method
        self._client_frame = client_frame
        self._ids = count(1)
        self._connection: _ClientConnection | None = None

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
            self._connection = _ClientConnection(self._method, self._client_frame, self.peer)
        request_id = next(self._ids)
        self._connection.open(request_id, stream._inbox, request, opening)
        return request_id

    def _send(self, request_id: int, message: InputT) -> None:
        if self._connection is not None and request_id in self._connection.streams:
            self._connection.outbox.merge(request_id, message)

    def _leave(self, stream: Stream[OpenT, InputT, EventT]) -> None:
        if self._connection is not None:
            self._connection.leave(stream.id)


class _ClientConnection:
    """One run of a session, from connecting to its loss."""

    def __init__(self, method: Callable[[AsyncIterator[Any]], Any], client_frame: type[Message], peer: str) -> None:
        self.streams: dict[int, _Inbox[Any]] = {}
        self.outbox = _Outbox(client_frame, "input")
        self.lost = False
        self._peer = peer
        self._reached = False
        self._call = method(self.outbox.frames())
        self._reader = asyncio.create_task(self._read(), name=f"session with {peer}")

    def open(self, request_id: int, inbox: _Inbox[Any], request: Message, opening: Opening) -> None:
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


class Call(Generic[OpenT, InputT, EventT]):
    """One request, seen by the server's handler: what was asked, an async iterator of inputs, and ``emit``."""

    def __init__(self, request_id: int, request: OpenT, opening: Opening, outbox: _Outbox) -> None:
        self.request = request
        self.opening = opening
        self._id = request_id
        self._outbox = outbox
        self._inputs: _Inbox[InputT] = _Inbox()

    def emit(self, event: EventT) -> None:
        """Send an event. Never blocks. Only for the event loop's thread, and only until the handler returns."""
        self._outbox.merge(self._id, event)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> InputT:
        return await self._inputs.get()


Handler = Callable[[Call[Any, Any, Any]], Awaitable[None]]


class SessionServer:
    """The server's end of all sessions of a service.

    ``handler`` serves one request, in a task of its own. When it returns the request ends; a ``ServiceError`` it raises
    goes to the client, anything else is logged and becomes ``internal error``. A cancel by the client, the loss of the
    session, and the deadline cancel the task.
    """

    def __init__(
        self, handler: Handler, server_frame: type[Message], *, max_open_requests: int = MAX_OPEN_REQUESTS
    ) -> None:
        self._handler = handler
        self._server_frame = server_frame
        self._max_open_requests = max_open_requests
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    @property
    def num_open(self) -> int:
        """Requests being served, over all sessions."""
        return len(self._tasks)

    async def drain(self) -> None:
        """Refuse new requests, and return when the running ones have ended."""
        self._draining = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def serve(self, frames: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The body of a ``Session`` method: frames in, frames out. Ends when the client closes its side."""
        connection = _ServerConnection(self, self._server_frame)
        reader = asyncio.create_task(connection.read(frames))
        try:
            async for frame in connection.outbox.frames():
                yield frame
            await reader
        finally:
            reader.cancel()
            connection.cancel_all()

    def _start(self, serving: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Raises ``ServiceError`` when no more requests are taken."""
        if self._draining:
            raise Unavailable("the server is shutting down", retry_after=1.0)
        if len(self._tasks) >= self._max_open_requests:
            raise Overloaded("too many requests at once", retry_after=1.0)
        task: asyncio.Task[None] = asyncio.ensure_future(_as_coroutine(serving))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _as_coroutine(serving: Callable[[], Awaitable[None]]) -> None:
    await serving()


@dataclass(slots=True)
class _Running:
    call: Call[Any, Any, Any]
    task: asyncio.Task[None]
    deadline: asyncio.TimerHandle | None = None


class _ServerConnection:
    """One session: the requests that a client has open on it."""

    def __init__(self, server: SessionServer, server_frame: type[Message]) -> None:
        self.outbox = _Outbox(server_frame, "event")
        self._server = server
        self._running: dict[int, _Running] = {}
        self._highest_id = 0

    async def read(self, frames: AsyncIterator[Any]) -> None:
        """Act on what the client says until it closes its side. Raises ``InvalidRequest`` on a breach of protocol."""
        try:
            async for frame in frames:
                for entry in frame.entries:
                    self._dispatch(entry)
        finally:
            self.cancel_all()
            self.outbox.close()

    def cancel_all(self) -> None:
        """Nobody listens any more."""
        for request_id in list(self._running):
            self._cancel(request_id)

    def _dispatch(self, entry: Any) -> None:
        match entry.WhichOneof("body"):
            case "open":
                self._open(entry)
            case "input":
                if running := self._running.get(entry.id):
                    running.call._inputs.put(entry.input)
            case "cancel":
                self._cancel(entry.id)

    def _open(self, entry: Any) -> None:
        if entry.id <= self._highest_id:
            raise InvalidRequest("a request number was used twice on one session")
        self._highest_id = entry.id
        opening = Opening.from_wire(entry.opening)
        call: Call[Any, Any, Any] = Call(entry.id, entry.open, opening, self.outbox)
        try:
            task = self._server._start(lambda: self._serve(entry.id, call))
        except ServiceError as error:
            self._fail(entry.id, error)
            return
        running = self._running[entry.id] = _Running(call, task)
        if opening.timeout is not None:
            loop = asyncio.get_running_loop()
            running.deadline = loop.call_later(opening.timeout, self._on_deadline, entry.id)

    async def _serve(self, request_id: int, call: Call[Any, Any, Any]) -> None:
        structlog.contextvars.bind_contextvars(request_id=call.opening.request_id)
        try:
            await self._server._handler(call)
        except ServiceError as error:
            if self._forget(request_id):
                self._fail(request_id, error)
        except asyncio.CancelledError as error:
            # Who cancels from here has taken the request off the books before. Otherwise something that the handler
            # waited for was cancelled, and its client would wait for ever.
            if self._forget(request_id):
                self._fail(request_id, public(error))
            raise
        except Exception as error:
            log.exception("request failed")
            if self._forget(request_id):
                self._fail(request_id, public(error))
        else:
            if self._forget(request_id):
                self.outbox.add(request_id).end.SetInParent()
        finally:
            self._forget(request_id)

    def _fail(self, request_id: int, error: ServiceError) -> None:
        self.outbox.add(request_id).failure.CopyFrom(to_failure(error))

    def _cancel(self, request_id: int) -> None:
        if running := self._forget(request_id):
            running.task.cancel()

    def _on_deadline(self, request_id: int) -> None:
        if running := self._forget(request_id):
            running.task.cancel()
            self._fail(request_id, DeadlineExceeded("the request did not finish in time"))

    def _forget(self, request_id: int) -> _Running | None:
        """Take the request off the books; whoever does it says the last word."""
        running = self._running.pop(request_id, None)
        if running is not None and running.deadline is not None:
            running.deadline.cancel()
        return running
