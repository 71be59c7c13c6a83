"""Incomplete requests: slow, unfinished and absent bodies."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from bench.hostile.kind import Kind, Target, head, status

_LARGEST: Final = 8 * 2**20
_LARGE: Final = head(_LARGEST) + b" " * (_LARGEST - 1)


async def _slow(target: Target) -> str:
    reader, writer = await asyncio.open_connection(target.host, target.port)
    writer.write(head(1000) + b"{")
    response = asyncio.create_task(reader.read())
    while not (await asyncio.wait([response], timeout=2))[0]:
        writer.write(b" ")
    writer.close()
    return status(await response)


KINDS: Final = (
    Kind("slow-bodies", "a body that is sent at one byte every two seconds", _slow, 1100, pause_seconds=1),
    # More than the gateway buffers at a time.
    Kind(
        "large-bodies",
        "a body of the maximum size without its last byte",
        partial(Target.send, request=_LARGE),
        44,
        pause_seconds=1,
    ),
    Kind("silence", "a connection without a request", partial(Target.send, request=b""), 1100, pause_seconds=1),
)
