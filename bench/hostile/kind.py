"""A kind of hostile clients: their attack, their number, and the settings of the stack."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson


@dataclass(frozen=True, slots=True)
class Target:
    """Address of the gateway, and the requested model."""

    host: str
    port: int
    model: str

    def chat(self, content: str = "hi", **fields: Any) -> bytes:
        """The bytes of a chat request."""
        body = orjson.dumps({"model": self.model, "messages": [{"role": "user", "content": content}]} | fields)
        return head(len(body)) + body

    async def send(self, request: bytes) -> str:
        """Send on a new connection; returns the status once the response is complete."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(request)
            return status(await reader.read())
        finally:
            writer.close()


def head(length: int) -> bytes:
    names = "host: x\r\nconnection: close\r\ncontent-type: application/json"
    return f"POST /v1/chat/completions HTTP/1.1\r\n{names}\r\ncontent-length: {length}\r\n\r\n".encode()


def status(response: bytes) -> str:
    return response.split(maxsplit=2)[1].decode() if response else "closed"


Attack: TypeAlias = Callable[[Target], Awaitable[str]]
Good: TypeAlias = Mapping[str, Callable[[], dict[str, Any]]]
"""The requests of the good client, in turn: names, and extra fields of the chat."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``clients`` hostile clients; each one repeats: attack, wait for the response, pause."""

    name: str
    what: str
    attack: Attack
    clients: int
    settings: Mapping[str, str] = field(default_factory=lambda: {"ENGINE_MODEL": "simulated"})
    """Settings of the stack that differ from the defaults."""
    pause_seconds: float = 0.0
    good: Good = field(default_factory=lambda: {"plain": dict})
