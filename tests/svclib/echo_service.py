"""A service for tests of ``svclib.server``: the detokenizer's API, answering each token with a letter.

Its settings can make it start slowly or fail at start.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter
from pydantic_settings import SettingsConfigDict

from protos.v1 import detokenizer_pb2 as pb
from protos.v1 import detokenizer_pb2_grpc as pb_grpc
from svclib.config import ServiceSettings, SettingsError
from svclib.errors import InvalidRequest
from svclib.health import Health
from svclib.server import run
from svclib.session import Call, SessionServer
from svclib.status import unary


class EchoSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="ECHO_")

    start_seconds: float = 0.0
    start_error: str = ""


class EchoServicer(pb_grpc.DetokenizerServicer):
    def __init__(self) -> None:
        self.sessions = SessionServer(self.echo, pb.DetokenizerServerFrame)

    async def Session(self, frames: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for frame in self.sessions.serve(frames):
            yield frame

    @unary
    async def GetInfo(self, request: pb.DetokenizerInfoRequest, context: Any) -> pb.DetokenizerInfo:
        raise InvalidRequest("not implemented", param="the_field", retry_after=3.0)

    async def echo(self, call: Call[pb.FormatRequest, pb.FormatInput, pb.FormatEvent]) -> None:
        async for message in call:
            if 99 in message.token_ids:
                raise RuntimeError("the secret of the house")
            text = "".join(chr(97 + token) for token in message.token_ids)
            call.emit(pb.FormatEvent(deltas=[pb.Delta(content=text)]))
            if message.finish_reason:
                return


class EchoService:
    name = "echo"
    service_names = ("pellucid.v1.Detokenizer",)

    def __init__(self, settings: EchoSettings) -> None:
        self.settings = settings
        self.registry = CollectorRegistry()
        Counter("echo_starts", "starts", registry=self.registry).inc()
        self.servicer = EchoServicer()

    def register(self, server: grpc.aio.Server) -> None:
        pb_grpc.add_DetokenizerServicer_to_server(self.servicer, server)

    async def start(self, health: Health) -> None:
        await asyncio.to_thread(time.sleep, self.settings.start_seconds)
        if self.settings.start_error == "setting":
            raise SettingsError("no such model")
        if self.settings.start_error == "fault":
            raise RuntimeError("broken")

    async def drain(self) -> None:
        await self.servicer.sessions.drain()

    async def stop(self) -> None:
        sys.stderr.write("released\n")


if __name__ == "__main__":
    settings = EchoSettings.load(sys.argv[1:])
    sys.exit(run(EchoService(settings), settings))
