"""Hung peers, whose connections stay open: keepalive detects them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from protos.v1 import detokenizer_pb2 as pb
from protos.v1 import detokenizer_pb2_grpc as pb_grpc
from svclib.channel import SERVER_OPTIONS, connect
from svclib.errors import PeerLost
from svclib.session import SessionClient, SessionServer
from tests.svclib.echo_service import EchoServicer
from tests.svclib.pipe import FormatCall, FormatClient, opening, request

DETECTION_SECONDS = 15 + 15
"""Keepalive time and timeout, plus slack for a busy machine."""


@asynccontextmanager
async def listening(servicer: EchoServicer) -> AsyncIterator[str]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    pb_grpc.add_DetokenizerServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def child(module: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments), stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


class Watching(EchoServicer):
    """Records when its request begins and when it is cancelled."""

    def __init__(self) -> None:
        self.sessions = SessionServer(self.wait, pb.DetokenizerServerFrame)
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def wait(self, call: FormatCall) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


async def a_service_hangs() -> None:
    async with child("tests.svclib.echo_service") as process:
        assert process.stderr is not None
        address = ""
        async for line in process.stderr:
            if b'"started"' in line:
                address = line.decode().partition('"address": "')[2].partition('"')[0]
            if b'"serving"' in line:
                break
        async with connect(address) as channel:
            session: Any = pb_grpc.DetokenizerStub(channel).Session
            client: FormatClient = SessionClient(session, pb.DetokenizerClientFrame, peer="service")
            async with client.open(request(), opening()) as stream:
                stream.send(pb.FormatInput(token_ids=[0]))
                await anext(stream)
                process.send_signal(signal.SIGSTOP)
                async with asyncio.timeout(DETECTION_SECONDS):
                    with pytest.raises(PeerLost):
                        await anext(stream)


async def a_client_hangs() -> None:
    servicer = Watching()
    async with listening(servicer) as address, child("tests.svclib.hanging_client", address) as process:
        await servicer.begun.wait()
        process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(DETECTION_SECONDS):
            await servicer.cancelled.wait()


async def test_a_hung_service_and_a_hung_client_are_detected() -> None:
    """Concurrently, because each takes up to 15 seconds."""
    await asyncio.gather(a_service_hangs(), a_client_hangs())
