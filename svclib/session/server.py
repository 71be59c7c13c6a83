"""The server's end: requests are served here, each by a handler in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

import structlog
from google.protobuf.message import Message

from svclib.errors import DeadlineExceeded, InvalidRequest, Overloaded, ServiceError, Unavailable, public
from svclib.session.inbox import Allowance, Inbox
from svclib.session.limits import DEFAULT_LIMITS, SessionLimits
from svclib.session.opening import Opening
from svclib.session.outbox import Outbox
from svclib.status import to_failure

MAX_OPEN_REQUESTS: Final = 8192

OpenT = TypeVar("OpenT", bound=Message)
InputT = TypeVar("InputT", bound=Message)
EventT = TypeVar("EventT", bound=Message)

log = structlog.get_logger(__name__)


class Call(Generic[OpenT, InputT, EventT]):
    """One request, seen by the server's handler: what was asked, an async iterator of inputs, and ``emit``."""

    def __init__(
        self, request_id: int, request: OpenT, opening: Opening, outbox: Outbox, inputs: Inbox[InputT]
    ) -> None:
        self.request = request
        self.opening = opening
        self._id = request_id
        self._outbox = outbox
        self._inputs = inputs

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
        self,
        handler: Handler,
        server_frame: type[Message],
        *,
        max_open_requests: int = MAX_OPEN_REQUESTS,
        limits: SessionLimits = DEFAULT_LIMITS,
    ) -> None:
        self._limits = limits
        self._handler = handler
        self._server_frame = server_frame
        self._max_open_requests = max_open_requests
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()
        self._draining = False

    @property
    def num_open(self) -> int:
        """Requests being served, over all sessions."""
        return len(self._tasks)

    async def drain(self) -> None:
        """Refuse new requests, and return when the running ones have ended. Then, or when cancelled, sessions end."""
        self._draining = True
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            for connection in self._connections:
                connection.end()

    async def serve(self, frames: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The body of a ``Session`` method: frames in, frames out. Ends when the client closes its side."""
        connection = _Connection(self, self._server_frame)
        reader = connection.start_reading(frames)
        self._connections.add(connection)
        try:
            async for frame in connection.outbox.frames():
                yield frame
            await asyncio.wait((reader,))
            if not reader.cancelled():
                reader.result()
        finally:
            self._connections.discard(connection)
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


class _Connection:
    """One session: the requests that a client has open on it."""

    def __init__(self, server: SessionServer, server_frame: type[Message]) -> None:
        self.outbox = Outbox(server_frame, "event", max_bytes=server._limits.unsent, on_overflow=self._on_overflow)
        self._allowance = Allowance(server._limits)
        self._reader: asyncio.Task[None] | None = None
        self._server = server
        self._running: dict[int, _Running] = {}
        self._highest_id = 0

    def start_reading(self, frames: AsyncIterator[Any]) -> asyncio.Task[None]:
        """``read`` in a task of its own, which ends when the client does not take what it is told."""
        self._reader = asyncio.create_task(self.read(frames))
        return self._reader

    async def read(self, frames: AsyncIterator[Any]) -> None:
        """Act on what the client says until it closes its side. Raises ``InvalidRequest`` on a breach of protocol."""
        try:
            async for frame in frames:
                for entry in frame.entries:
                    self._dispatch(entry)
        finally:
            self.cancel_all()
            self.outbox.close()

    def end(self) -> None:
        """Read no more; the session ends once everything is written."""
        if self._reader is not None:
            self._reader.cancel()

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
        inputs: Inbox[Any] = Inbox(self._allowance, partial(self._on_slow_reader, entry.id))
        call: Call[Any, Any, Any] = Call(entry.id, entry.open, opening, self.outbox, inputs)
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

    def _on_slow_reader(self, request_id: int) -> None:
        if running := self._forget(request_id):
            running.task.cancel()
            self._fail(request_id, running.call._inputs.error or Overloaded("read too slowly"))

    def _on_overflow(self) -> None:
        log.warning("the client of a session does not read")
        self.end()

    def _forget(self, request_id: int) -> _Running | None:
        """Take the request off the books; whoever does it says the last word."""
        running = self._running.pop(request_id, None)
        if running is not None:
            running.call._inputs.drop()
            if running.deadline is not None:
                running.deadline.cancel()
        return running
