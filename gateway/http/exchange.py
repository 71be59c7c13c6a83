"""One request and its answer, in ASGI terms: ``scope``, ``receive`` and ``send``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Scope

from gateway.http.head import Head
from gateway.http.response import CONTINUE, Response
from gateway.http.writer import Writer

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionHooks:
    """What an exchange needs of its connection."""

    writer: Writer
    resume_reading: Callable[[], None]
    on_complete: Callable[[], None]
    default_headers: list[tuple[bytes, bytes]]


def scope_of(head: Head, *, server: Any, client: Any, state: dict[str, Any]) -> Scope:
    """The ASGI scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": head.version,
        "server": server,
        "client": client,
        "scheme": "http",
        "method": head.method,
        "root_path": "",
        "path": head.path,
        "raw_path": head.raw_path,
        "query_string": head.query,
        "headers": head.headers,
        "state": state,
    }


class Exchange:
    """A request from the last byte of its head to the last byte of its answer."""

    def __init__(self, hooks: ConnectionHooks, scope: Scope, head: Head, *, keep_alive: bool) -> None:
        self._hooks = hooks
        self._scope = scope
        self._response = Response(head.method, head.version, keep_alive=keep_alive)
        self._owes_continue = head.expects_continue
        self._body = bytearray()
        self._changed = asyncio.Event()
        self.is_body_complete = False
        self.is_disconnected = False
        self.is_complete = False
        """The whole answer is written."""

    @property
    def keep_alive(self) -> bool:
        """Another request may follow on the connection."""
        return self._response.keep_alive

    @property
    def is_started(self) -> bool:
        return self._response.is_started

    def end_connection(self) -> None:
        """Close the connection after the answer."""
        self._response.keep_alive = False

    def feed(self, data: bytes) -> int:
        """Take a piece of the body. Returns the number of bytes that wait for the application."""
        self._body += data
        self._changed.set()
        return len(self._body)

    def end_body(self) -> None:
        self._owes_continue = False
        self.is_body_complete = True
        self._changed.set()

    def disconnect(self) -> None:
        """The client disconnected."""
        self.is_disconnected = True
        self._changed.set()

    def probe(self) -> None:
        """Send a byte of the answer ahead, to find out whether the client still reads."""
        self._hooks.writer.write(self._response.probe())

    async def run(self, app: ASGIApp) -> None:
        """Run the application."""
        try:
            await app(self._scope, self.receive, self.send)
        except Exception:
            log.exception("request failed")
        finally:
            if not self.is_complete and not self.is_disconnected:
                self._hooks.writer.end()

    async def receive(self) -> Message:
        if self._owes_continue and not self.is_started:
            self._owes_continue = False
            self._hooks.writer.write(CONTINUE)
        if not self.is_disconnected and not self.is_complete:
            self._hooks.resume_reading()
            await self._changed.wait()
            self._changed.clear()
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": body, "more_body": not self.is_body_complete}

    async def send(self, message: Message) -> None:
        """Waits while much is unsent. After a disconnect the message is dropped."""
        await self._hooks.writer.drain()
        if self.is_disconnected:
            return
        if message["type"] == "http.response.start":
            self._start(message)
        else:
            self._write_body(message)

    def _start(self, message: dict[str, Any] | Message) -> None:
        # Without 100 Continue the client may or may not send the body, so the next request cannot be found.
        if self._owes_continue:
            self.end_connection()
        headers = [*self._hooks.default_headers, *message["headers"]]
        self._hooks.writer.write(self._response.start(message["status"], headers))

    def _write_body(self, message: dict[str, Any] | Message) -> None:
        if self.is_complete:
            raise RuntimeError("message after the end of the answer")
        is_last = not message.get("more_body", False)
        self._hooks.writer.write(self._response.body(message.get("body", b""), is_last=is_last))
        if is_last:
            self.is_complete = True
            self._changed.set()
            self._hooks.on_complete()
