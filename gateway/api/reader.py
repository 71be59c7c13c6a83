"""Bodies to chat requests, without holding up the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from gateway.api.chat.schema import read_chat
from gateway.generation.request import ChatRequest
from gateway.http.json_body import parse_object
from gateway.policy.limits import INLINE_JSON_BYTES, JSON_THREADS


class RequestReader:
    """Small bodies are read at once, large ones in a pool of a few threads. Admission bounds how many wait for it."""

    def __init__(self, *, reject_unknown: bool) -> None:
        self._reject_unknown = reject_unknown
        self._pool = ThreadPoolExecutor(JSON_THREADS, thread_name_prefix="json")

    async def read(self, body: bytes) -> ChatRequest:
        """Raises ``InvalidRequest`` naming the field at fault."""
        if len(body) <= INLINE_JSON_BYTES:
            return self._read(body)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, body)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, body: bytes) -> ChatRequest:
        return read_chat(parse_object(body), reject_unknown=self._reject_unknown)
