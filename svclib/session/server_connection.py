"""The server's end of one session: the requests that one client has open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import structlog
from google.protobuf.message import Message

from svclib.errors import DeadlineExceeded, InvalidRequest, Overloaded, ServiceError, public
from svclib.session.call import Call
from svclib.session.inbox import Allowance, Inbox
from svclib.session.limits import SessionLimits
from svclib.session.opening import Opening
from svclib.session.outbox import Outbox
from svclib.status import to_failure

Handler: TypeAlias = Callable[[Call[Any, Any, Any]], Awaitable[None]]
"""Serves one request."""

StartTask: TypeAlias = Callable[[Callable[[], Awaitable[None]]], asyncio.Task[None]]
"""Runs a request in its own task. Raises ``ServiceError`` if the server takes no more requests."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Running:
    call: Call[Any, Any, Any]
    task: asyncio.Task[None]
    deadline: asyncio.TimerHandle | None = None


class ServerConnection:
    """One session: reads the client's entries, runs a handler for each request, and fills ``outbox``."""

    def __init__(
        self, handler: Handler, start_task: StartTask, server_frame: type[Message], limits: SessionLimits
    ) -> None:
        self.outbox = Outbox(server_frame, "event", max_bytes=limits.unsent, on_overflow=self._on_overflow)
        self._handler = handler
        self._start_task = start_task
        self._allowance = Allowance(limits)
        self._reader: asyncio.Task[None] | None = None
        self._running: dict[int, _Running] = {}
        self._highest_id = 0

    def start_reading(self, frames: AsyncIterator[Any]) -> asyncio.Task[None]:
        """Run ``read`` in its own task. It is cancelled when the client does not read its events."""
        self._reader = asyncio.create_task(self.read(frames))
        return self._reader

    async def read(self, frames: AsyncIterator[Any]) -> None:
        """Process the client's entries until it closes its side. Raises ``InvalidRequest`` on a protocol violation."""
        try:
            async for frame in frames:
                for entry in frame.entries:
                    self._dispatch(entry)
        finally:
            self.cancel_all()
            self.outbox.close()

    def end(self) -> None:
        """Stop reading; the session ends once everything is written."""
        if self._reader is not None:
            self._reader.cancel()

    def cancel_all(self) -> None:
        """Cancel every running request without a terminal entry: the client no longer reads."""
        for request_id in list(self._running):
            self._cancel(request_id)

    def _dispatch(self, entry: Any) -> None:
        match entry.WhichOneof("body"):
            case "open":
                self._open(entry)
            case "input":
                if running := self._running.get(entry.id):
                    running.call.inputs.put(entry.input)
            case "cancel":
                self._cancel(entry.id)

    def _open(self, entry: Any) -> None:
        if entry.id <= self._highest_id:
            raise InvalidRequest(f"entry id {entry.id} was used twice on one session; ids must increase")
        self._highest_id = entry.id
        opening = Opening.from_wire(entry.opening)
        inputs: Inbox[Any] = Inbox(self._allowance, partial(self._on_slow_reader, entry.id))
        call: Call[Any, Any, Any] = Call(entry.id, entry.open, opening, self.outbox, inputs)
        try:
            task = self._start_task(lambda: self._serve(entry.id, call))
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
            await self._handler(call)
        except ServiceError as error:
            if self._release(request_id):
                self._fail(request_id, error)
        except asyncio.CancelledError as error:
            # A cancel by this connection releases the request first. If it is still held, something that the handler
            # awaited was cancelled, and without a terminal entry the client would wait forever.
            if self._release(request_id):
                self._fail(request_id, public(error))
            raise
        except Exception as error:
            log.exception("request failed")
            if self._release(request_id):
                self._fail(request_id, public(error))
        else:
            if self._release(request_id):
                self.outbox.add(request_id).end.SetInParent()
        finally:
            self._release(request_id)

    def _fail(self, request_id: int, error: ServiceError) -> None:
        self.outbox.add(request_id).failure.CopyFrom(to_failure(error))

    def _cancel(self, request_id: int) -> None:
        if running := self._release(request_id):
            running.task.cancel()

    def _on_deadline(self, request_id: int) -> None:
        if running := self._release(request_id):
            running.task.cancel()
            self._fail(request_id, DeadlineExceeded("the request did not finish before its deadline"))

    def _on_slow_reader(self, request_id: int) -> None:
        if running := self._release(request_id):
            running.task.cancel()
            self._fail(request_id, running.call.inputs.error or Overloaded("read too slowly"))

    def _on_overflow(self) -> None:
        log.warning("session closed: the client does not read")
        self.end()

    def _release(self, request_id: int) -> _Running | None:
        """Remove the request; the caller that gets it, and no other, writes the terminal entry."""
        running = self._running.pop(request_id, None)
        if running is not None:
            running.call.inputs.drop()
            if running.deadline is not None:
                running.deadline.cancel()
        return running
