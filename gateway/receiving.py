"""What a client sends: its body, and at some time the end of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Receive

from gateway.errors import ClientGone
from gateway.interrupt import Interrupt
from svclib.errors import UnsupportedMediaType

_UTF_8: Final = frozenset({"utf-8", "utf8"})


def check_json_headers(headers: Headers) -> None:
    """Raises ``UnsupportedMediaType`` unless a body is said to be plain JSON."""
    media_type, _, parameters = headers.get("content-type", "").lower().partition(";")
    if media_type.strip() != "application/json":
        raise UnsupportedMediaType("the content-type must be application/json")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if parameters.strip().startswith("charset=") and charset not in _UTF_8:
        raise UnsupportedMediaType("JSON is always UTF-8")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("compressed bodies are not supported")


async def read_body(receive: Receive) -> bytes:
    """The whole body. Raises ``ClientGone``, and whatever ``receive`` does."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


@asynccontextmanager
async def while_connected(receive: Receive, interrupt: Interrupt) -> AsyncIterator[None]:
    """Interrupt the block with ``ClientGone`` when the client hangs up. To be entered when the body has been read."""
    watch = asyncio.create_task(_wait_for_end(receive, interrupt))
    try:
        yield
    finally:
        watch.cancel()


async def _wait_for_end(receive: Receive, interrupt: Interrupt) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    interrupt(ClientGone())
