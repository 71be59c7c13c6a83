"""The engine over gRPC: each call goes to the backend, whatever kind of model it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from engine_svc.backends.interface import Backend, GenerateCall
from protos.v1 import engine_pb2, engine_pb2_grpc
from svclib.session import SessionServer
from svclib.status import unary


class EngineServicer(engine_pb2_grpc.EngineServicer):
    """Serves a backend once it has one: ``attach`` comes before the first call."""

    def __init__(self) -> None:
        self._sessions = SessionServer(self._generate, engine_pb2.EngineServerFrame)
        self._backend: Backend

    def attach(self, backend: Backend) -> None:
        """Serve from this backend."""
        self._backend = backend

    async def drain(self) -> None:
        """Refuse new requests of sessions, and return when the running ones have ended."""
        await self._sessions.drain()

    async def Session(
        self,
        request_iterator: AsyncIterator[engine_pb2.EngineClientFrame],
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002  # part of the signature
    ) -> AsyncIterator[engine_pb2.EngineServerFrame]:
        async for frame in self._sessions.serve(request_iterator):
            yield frame

    @unary
    async def Embed(
        self, request: engine_pb2.EmbedRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> engine_pb2.EmbedResponse:
        return await self._backend.embed(request)

    @unary
    async def GetModelInfo(
        self, _request: engine_pb2.ModelInfoRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> engine_pb2.ModelInfo:
        return self._backend.model_info()

    @unary
    async def GetLoads(
        self, _request: engine_pb2.LoadsRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> engine_pb2.Loads:
        return self._backend.loads()

    async def _generate(self, call: GenerateCall) -> None:
        await self._backend.generate(call)
