"""The server's end of all sessions of a service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message

from svclib.errors import Overloaded, Unavailable
from svclib.session.limits import DEFAULT_LIMITS, SessionLimits
from svclib.session.server_connection import Handler, ServerConnection

MAX_OPEN_REQUESTS: Final = 8192


class SessionServer:
    """Serves the requests of all sessions of a service.

    ``handler`` serves one request, in its own task. When it returns, the request ends; a ``ServiceError`` that it
    raises goes to the client, any other exception is logged and sent as ``internal error``. A cancel by the client, the
    loss of the session, and the deadline cancel the task.
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
        self._connections: set[ServerConnection] = set()
        self._draining = False

    @property
    def num_open(self) -> int:
        """Requests in progress, over all sessions."""
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
        connection = ServerConnection(self._handler, self._start, self._server_frame, self._limits)
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
        """Run a request in its own task. Raises ``ServiceError`` while draining or at the limit of open requests."""
        if self._draining:
            raise Unavailable("the server is shutting down", retry_after=1.0)
        if len(self._tasks) >= self._max_open_requests:
            raise Overloaded(f"too many open requests; at most {self._max_open_requests} at a time", retry_after=1.0)
        task: asyncio.Task[None] = asyncio.ensure_future(_as_coroutine(serving))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _as_coroutine(serving: Callable[[], Awaitable[None]]) -> None:
    await serving()
