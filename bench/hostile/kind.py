"""A kind of hostile client: what each does, how many there are, and the stack that they need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson


@dataclass(frozen=True, slots=True)
class Target:
    """The address of the gateway, and the model."""

    host: str
    port: int
    model: str

    def chat(self, content: str = "hi", **fields: Any) -> bytes:
        """A complete request, as bytes."""
        body = orjson.dumps({"model": self.model, "messages": [{"role": "user", "content": content}]} | fields)
        return head(len(body)) + body

    async def answer(self, sent: bytes) -> str:
        """The status of the answer, on a new connection, after the whole answer has arrived."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(sent)
            return status(await reader.read())
        finally:
            writer.close()


def head(length: int) -> bytes:
    names = "host: x\r\nconnection: close\r\ncontent-type: application/json"
    return f"POST /v1/chat/completions HTTP/1.1\r\n{names}\r\ncontent-length: {length}\r\n\r\n".encode()


def status(answer: bytes) -> str:
    return answer.split(maxsplit=2)[1].decode() if answer else "closed"


Attack: TypeAlias = Callable[[Target], Awaitable[str]]
Good: TypeAlias = Mapping[str, Callable[[], dict[str, Any]]]
"""The good client's requests, in turn: names, and the fields of a chat."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``clients``, each of which attacks, gets an answer, pauses and attacks again."""

    name: str
    what: str
    attack: Attack
    clients: int
    settings: Mapping[str, str] = field(default_factory=lambda: {"ENGINE_MODEL": "simulated"})
    """Settings of the stack that differ from the defaults."""
    pause_seconds: float = 0.0
    good: Good = field(default_factory=lambda: {"plain": dict})
