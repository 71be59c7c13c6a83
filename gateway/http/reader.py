"""Bodies to requests, without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gateway.http.json_body import parse_object
from gateway.policy.limits import INLINE_JSON_BYTES, JSON_THREADS

RequestT = TypeVar("RequestT")


class JsonReader:
    """Small bodies are read at once, large ones in a pool of a few threads. Admission bounds how many wait for it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(JSON_THREADS, thread_name_prefix="json")

    async def read(self, body: bytes, read: Callable[[Mapping[str, Any]], RequestT]) -> RequestT:
        """What ``read`` makes of the JSON object in a body. Raises ``InvalidRequest`` naming the field at fault."""
        if len(body) <= INLINE_JSON_BYTES:
            return read(parse_object(body))
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: read(parse_object(body)))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
