"""The client's end of one session, from connecting to its loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import grpc
import structlog
from google.protobuf.message import Message

from svclib.errors import PeerLost, ServiceError, Unavailable
from svclib.session.inbox import Inbox
from svclib.session.limits import SessionLimits
from svclib.session.opening import Opening
from svclib.session.outbox import Outbox
from svclib.status import from_failure

SessionMethod: TypeAlias = Callable[[AsyncIterator[Any]], Any]
"""A stub's ``Session``: client frames in, a call that yields server frames out."""

log = structlog.get_logger(__name__)


class ClientConnection:
    """One session: writes the entries in ``outbox``, and puts what the server sends into the inbox of its request."""

    def __init__(self, method: SessionMethod, client_frame: type[Message], peer: str, limits: SessionLimits) -> None:
        self.streams: dict[int, Inbox[Any]] = {}
        self.outbox = Outbox(client_frame, "input", max_bytes=limits.unsent, on_overflow=self._on_overflow)
        self.lost = False
        self._peer = peer
        self._reached = False
        self._call = method(self.outbox.frames())
        self._reader = asyncio.create_task(self._read(), name=f"session with {peer}")

    def open(self, request_id: int, inbox: Inbox[Any], request: Message, opening: Opening) -> None:
        """Send a request whose events go to ``inbox``."""
        self.streams[request_id] = inbox
        entry = self.outbox.add(request_id)
        entry.open.CopyFrom(request)
        entry.open.SetInParent()
        entry.opening.CopyFrom(opening.to_wire())
        self.outbox.count_bytes(entry)

    def leave(self, request_id: int) -> None:
        """Stop reading a request; cancels it unless its terminal entry has arrived."""
        if self.streams.pop(request_id, None) is not None and not self.lost:
            self.outbox.add(request_id).cancel.SetInParent()

    async def close(self) -> None:
        """End the session; open requests end as if it were lost."""
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader

    def _on_overflow(self) -> None:
        log.warning("session closed: the peer does not read", peer=self._peer)
        self._reader.cancel()

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
            return PeerLost(f"lost the connection to the {self._peer}", retry_after=1.0)
        return Unavailable(f"cannot connect to the {self._peer}", retry_after=1.0)
