"""What a client says of its body, and that it hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Receive

from gateway.http.errors import ClientGone
from gateway.policy.interrupt import Interrupt
from svclib.errors import UnsupportedMediaType

_JSON: Final = "application/json"
_UTF_8: Final = frozenset({"utf-8", "utf8"})


def check_json_headers(headers: Headers) -> None:
    """Raises ``UnsupportedMediaType`` when the headers say anything but plain JSON. No type at all is JSON."""
    media_type, _, parameters = headers.get("content-type", _JSON).lower().partition(";")
    if media_type.strip() != _JSON:
        raise UnsupportedMediaType(f"the content-type must be {_JSON}, not {media_type.strip() or 'empty'}")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if parameters.strip().startswith("charset=") and charset not in _UTF_8:
        raise UnsupportedMediaType("JSON is always UTF-8")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("compressed bodies are not supported")


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
