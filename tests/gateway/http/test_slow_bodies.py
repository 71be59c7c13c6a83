"""Clients that send their bodies slowly, or never, do not affect others."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from svclib.errors import Unavailable
from tests.gateway.http.wire import address_of, chat, opened, parse
from tests.gateway.running import Stack, scripted_stack, until

SLOW = chat(b"{", length=1000)


async def open_slow(stack: Stack, exits: AsyncExitStack, count: int) -> list[asyncio.StreamReader]:
    readers = []
    for _ in range(count):
        reader, writer = await exits.enter_async_context(opened(stack))
        writer.write(SLOW)
        readers.append(reader)
    return readers


async def test_slow_bodies_hold_no_permits() -> None:
    async with scripted_stack(max_concurrent_requests=2) as stack, AsyncExitStack() as exits:
        await open_slow(stack, exits, 20)
        await until(lambda: stack.gateway.bodies.num_readers == 20)
        assert stack.gateway.admission.in_use == 0
        for stream in (False, True):
            assert (await stack.chat(stream=stream)).status_code == 200
        assert stack.gateway.bodies.num_readers == 20


async def test_new_bodies_are_accepted_at_the_limit() -> None:
    async with scripted_stack(max_partial_bodies_per_client=5) as stack, AsyncExitStack() as exits:
        readers = await open_slow(stack, exits, 12)
        await until(lambda: stack.gateway.bodies.num_readers == 5)
        for reader in readers[:7]:
            status, headers, body = parse(await asyncio.wait_for(reader.read(), 20))
            assert (status, headers["connection"]) == (408, "close")
            assert json.loads(body)["error"]["code"] == "request_timeout"
        assert (await stack.chat()).status_code == 200


@pytest.mark.parametrize(
    "settings",
    [{"body_timeout": 0.1}, {"body_grace_seconds": 0.1}, {"max_partial_bodies": 1, "body_grace_seconds": 0.1}],
    ids=str,
)
async def test_slow_body_gets_a_408(settings: dict[str, Any]) -> None:
    async with scripted_stack(**settings) as stack, opened(stack) as (reader, writer):
        writer.write(SLOW)
        status, headers, body = parse(await asyncio.wait_for(reader.read(), 20))
        assert (status, headers["connection"], headers["content-type"]) == (408, "close", "application/json")
        error = json.loads(body)["error"]
        assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "request_timeout", None)
        assert stack.gateway.bodies.num_readers == 0
        writer.close()
        await until(lambda: not stack.http_server.server_state.connections)


async def test_dripping_body_gets_a_408() -> None:
    async with scripted_stack(body_grace_seconds=0.3) as stack, opened(stack) as (reader, writer):
        writer.write(SLOW)
        answer = asyncio.create_task(reader.readline())
        while not answer.done():
            writer.write(b" ")
            await asyncio.sleep(0.01)
        assert b"408" in await answer


async def test_draining_ends_slow_bodies() -> None:
    async with scripted_stack() as stack, opened(stack) as (reader, writer):
        writer.write(SLOW)
        await until(lambda: stack.gateway.bodies.num_readers == 1)
        stack.gateway.close()
        status, headers, body = parse(await asyncio.wait_for(reader.readuntil(b"}}"), 20))
        assert (status, json.loads(body)["error"]["code"]) == (503, "unavailable")
        assert headers["retry-after"]
        assert (await stack.chat()).status_code == 503


async def test_slow_bodies_do_not_block_shutdown() -> None:
    async with scripted_stack() as stack, opened(stack) as (reader, writer):
        writer.write(SLOW)
        await until(lambda: stack.gateway.bodies.num_readers == 1)
        stack.gateway.bodies.end_all(Unavailable("over"))
        stack.http_server.should_exit = True
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 20)


async def test_rest_of_an_answered_body_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application does not read this body: the route does not exist."""
    monkeypatch.setattr("gateway.http.connection.DISCARD_SECONDS", 0.2)
    async with scripted_stack() as stack, opened(stack) as (reader, writer):
        writer.write(SLOW.replace(b"/v1/chat/completions", b"/nowhere"))
        assert b"404" in await reader.readline()
        await asyncio.wait_for(reader.read(), 20)


async def test_connection_limit_closes_the_longest_idle_one() -> None:
    async with scripted_stack(max_connections=3) as stack, AsyncExitStack() as exits:
        silent = [await exits.enter_async_context(opened(stack)) for _ in range(3)]
        await until(lambda: len(stack.http_server.server_state.connections) == 3)
        slow, writer = silent[0]
        writer.write(SLOW)
        await until(lambda: stack.gateway.bodies.num_readers == 1)
        assert (await stack.chat()).status_code == 200
        assert await asyncio.wait_for(silent[1][0].read(), 20) == b""
        assert not slow.at_eof()
        assert len(stack.http_server.server_state.connections) <= 3


async def test_flood_of_silent_connections() -> None:
    async with scripted_stack(max_connections=10) as stack:
        host, port = address_of(stack)
        pairs = [await asyncio.open_connection(host, port) for _ in range(50)]
        assert (await stack.chat()).status_code == 200
        await until(lambda: len(stack.http_server.server_state.connections) <= 10)
        for _, writer in pairs:
            writer.close()
