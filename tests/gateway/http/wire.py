"""Raw bytes to and from a running gateway."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

from tests.gateway.running import HI, MODEL, Stack


def address_of(stack: Stack) -> tuple[str, int]:
    host, _, port = stack.url.removeprefix("http://").partition(":")
    return host, int(port)


def connect(stack: Stack) -> socket.socket:
    return socket.create_connection(address_of(stack), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    """Read until the server ends its side. Raises ``ConnectionResetError``."""
    received = b""
    while piece := connection.recv(2**16):
        received += piece
    return received


def parse(received: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer."""
    top, _, body = received.partition(b"\r\n\r\n")
    status, *headers = top.decode().split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in headers), body


def answer_to(stack: Stack, *pieces: bytes) -> tuple[int, dict[str, str], bytes]:
    """The answer to these bytes, read until the server closes."""
    with closing(connect(stack)) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                connection.sendall(piece)
        return parse(read_all(connection))


def chat_body(*, model: str = MODEL, **fields: Any) -> bytes:
    return json.dumps({"model": model, "messages": HI} | fields).encode()


def chat(body: bytes, *headers: str, version: str = "1.1", length: int | None = None) -> bytes:
    """A whole request. ``length`` replaces the length of ``body`` in content-length."""
    lines = [
        f"POST /v1/chat/completions HTTP/{version}", "host: x", "content-type: application/json",
        f"content-length: {len(body) if length is None else length}", *headers,
    ]  # fmt: skip
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


@asynccontextmanager
async def opened(stack: Stack, **options: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is closed at the end."""
    reader, writer = await asyncio.open_connection(*address_of(stack), **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
