"""Clients that stop reading: after a while their connections end, and with them the work that was done for them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.gateway.http.wire import address_of, chat, chat_body
from tests.gateway.running import Stack, scripted_stack, until
from tests.gateway.scripted import GenerateCall, ScriptedEngine, head, tokens

PIECE = "0123456789" * 1000


async def endlessly(call: GenerateCall) -> None:
    call.emit(head())
    while True:
        call.emit(tokens(PIECE))
        await asyncio.sleep(0.001)


async def at_once(call: GenerateCall) -> None:
    call.emit(head())
    for _ in range(500):
        call.emit(tokens(PIECE))
        await asyncio.sleep(0)
    call.emit(tokens("", finish="length"))


def silent_client(stack: Stack, **fields: Any) -> socket.socket:
    """It asks and never reads; its system takes little for it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address_of(stack))
    client.sendall(chat(chat_body(**fields)))
    return client


@pytest.mark.parametrize(("run", "stream"), [(endlessly, True), (at_once, True), (at_once, False)])
async def test_a_write_that_stalls_ends_the_request(run: Any, stream: bool) -> None:
    async with scripted_stack(ScriptedEngine(run), write_timeout=0.3) as stack:
        with silent_client(stack, stream=stream):
            await until(lambda: bool(stack.http_server.server_state.connections))
            await until(lambda: not stack.http_server.server_state.connections)
            await stack.until_idle()


async def test_what_waits_for_a_client_is_little() -> None:
    async with scripted_stack(ScriptedEngine(endlessly)) as stack:
        with silent_client(stack, stream=True):
            await until(lambda: bool(stack.http_server.server_state.connections))
            (connection,) = stack.http_server.server_state.connections
            await until(lambda: connection.transport.get_write_buffer_size() > 0)
            await asyncio.sleep(0.5)
            assert connection.transport.get_write_buffer_size() < 2 * 2**20


async def test_a_client_that_reads_slowly_but_reads_is_not_given_up() -> None:
    """What it reads in the setting's time is less than waits in the system, so that our own buffer stays as it is."""
    async with scripted_stack(ScriptedEngine(at_once), write_timeout=1.0) as stack:
        with silent_client(stack, stream=False) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_recv(client, 1)
            (connection,) = stack.http_server.server_state.connections
            for _ in range(40):
                await loop.sock_recv(client, 2048)
                await asyncio.sleep(0.1)
            assert connection in stack.http_server.server_state.connections
            assert not connection.transport.is_closing()


async def test_an_answer_that_nobody_reads_does_not_keep_a_closed_connection() -> None:
    async with scripted_stack(ScriptedEngine(at_once), write_timeout=0.3) as stack:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(address_of(stack))
        with client:
            client.sendall(chat(chat_body(), "connection: close"))
            await until(lambda: bool(stack.http_server.server_state.connections))
            await until(lambda: not stack.http_server.server_state.connections)
