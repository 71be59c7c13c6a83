"""Clients that stop reading: after a while their connections are closed and their requests aborted."""

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
    """It sends a request and never reads; its receive buffer is small."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address_of(stack))
    client.sendall(chat(chat_body(**fields)))
    return client


@pytest.mark.parametrize(("run", "stream"), [(endlessly, True), (at_once, True), (at_once, False)])
async def test_stalled_write_aborts_the_request(run: Any, stream: bool) -> None:
    async with scripted_stack(ScriptedEngine(run), write_timeout=0.3) as stack:
        with silent_client(stack, stream=stream):
            await until(lambda: bool(stack.http_server.server_state.connections))
            await until(lambda: not stack.http_server.server_state.connections)
            await stack.until_idle()


async def test_write_buffer_is_bounded() -> None:
    async with scripted_stack(ScriptedEngine(endlessly)) as stack:
        with silent_client(stack, stream=True):
            await until(lambda: bool(stack.http_server.server_state.connections))
            (connection,) = stack.http_server.server_state.connections
            await until(lambda: connection.transport.get_write_buffer_size() > 0)
            await asyncio.sleep(0.5)
            assert connection.transport.get_write_buffer_size() < 2 * 2**20


async def test_slow_but_steady_reader_is_kept() -> None:
    """It reads less per timeout than the kernel buffers, so that the gateway's own buffer does not shrink."""
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


async def test_unread_answer_does_not_keep_a_connection_open() -> None:
    async with scripted_stack(ScriptedEngine(at_once), write_timeout=0.3) as stack:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(address_of(stack))
        with client:
            client.sendall(chat(chat_body(), "connection: close"))
            await until(lambda: bool(stack.http_server.server_state.connections))
            await until(lambda: not stack.http_server.server_state.connections)
