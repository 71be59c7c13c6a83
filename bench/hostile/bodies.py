"""Requests that are never complete."""

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
    answer = asyncio.create_task(reader.read())
    while not (await asyncio.wait([answer], timeout=2))[0]:
        writer.write(b" ")
    writer.close()
    return status(await answer)


KINDS: Final = (
    Kind("slow-bodies", "a body that sends a byte every two seconds", _slow, 1100, pause_seconds=1),
    # More than the gateway buffers at a time.
    Kind(
        "large-bodies",
        "the largest body without its last byte",
        partial(Target.answer, sent=_LARGE),
        44,
        pause_seconds=1,
    ),
    Kind("silence", "a connection without a request", partial(Target.answer, sent=b""), 1100, pause_seconds=1),
)
