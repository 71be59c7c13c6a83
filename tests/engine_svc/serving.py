"""The engine behind a real gRPC server on the loopback, and a client's end of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from engine_svc.config import Settings
from engine_svc.embedding.interface import EmbeddingRunner
from engine_svc.loading import load_model
from engine_svc.runners.interface import Runner
from engine_svc.server import EngineService
from protos.v1 import engine_pb2, engine_pb2_grpc
from svclib.health import Health
from svclib.session import Opening, SessionClient, Stream

EOS = 258
Client: TypeAlias = SessionClient[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]
RequestStream: TypeAlias = Stream[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]


@dataclass(frozen=True, slots=True)
class Served:
    """A running engine and its clients."""

    service: EngineService
    stub: engine_pb2_grpc.EngineAsyncStub
    health: health_pb2_grpc.HealthStub
    client: Client

    def open(self, request: engine_pb2.GenerateRequest, *, timeout: float | None = None) -> RequestStream:
        return self.client.open(request, Opening(request.request_id, timeout))

    async def ask(self, request: engine_pb2.GenerateRequest) -> engine_pb2.GenerateEvent:
        """All events of a request, merged into one."""
        merged = engine_pb2.GenerateEvent()
        async with self.open(request) as stream:
            async for event in stream:
                merged.MergeFrom(event)
        return merged

    async def loads(self) -> engine_pb2.Loads:
        return await self.stub.GetLoads(engine_pb2.LoadsRequest())

    async def until_idle(self) -> engine_pb2.Loads:
        """The loads once no request is left and all blocks are free; fails if that does not happen."""
        return await self.until(lambda loads: loads.num_free_blocks == loads.num_blocks and not loads.num_waiting_reqs)

    async def until(self, condition: Callable[[engine_pb2.Loads], bool]) -> engine_pb2.Loads:
        """The first loads that fulfil ``condition``."""
        async with asyncio.timeout(30):
            while not condition(loads := await self.loads()):  # noqa: ASYNC110  # there is no event for changed loads
                await asyncio.sleep(0.005)
        return loads

    async def until_health(self, *, serving: bool) -> None:
        """Returns when the engine reports this status."""
        wanted = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        async with asyncio.timeout(30):
            async for answer in self.health.Watch(health_pb2.HealthCheckRequest(service=self.service.service_names[0])):
                if answer.status == wanted:
                    return


@asynccontextmanager
async def serving(
    load: Callable[[Settings], Runner | EmbeddingRunner] = load_model, **settings: Any
) -> AsyncIterator[Served]:
    """An engine, by default a simulated one, from start to stop."""
    service = EngineService(Settings(**{"model": "simulated", **settings}), load=load)
    health = Health(service.service_names)
    server = grpc.aio.server()
    service.register(server)
    health_pb2_grpc.add_HealthServicer_to_server(health.servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await service.start(health)
    await health.publish(True)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: engine_pb2_grpc.EngineAsyncStub = engine_pb2_grpc.EngineStub(channel)
        client: Client = SessionClient(stub.Session, engine_pb2.EngineClientFrame, peer="engine")
        try:
            yield Served(service, stub, health_pb2_grpc.HealthStub(channel), client)
        finally:
            await client.close()
            await server.stop(None)
            await service.stop()


def prompt(
    tokens: Iterable[int] | int = 4,
    *,
    simulate: engine_pb2.SimulatedScript | None = None,
    eos: Iterable[int] = (EOS,),
    name: str = "r",
    **params: Any,
) -> engine_pb2.GenerateRequest:
    """A request; an integer as the prompt is its length."""
    return engine_pb2.GenerateRequest(
        request_id=name,
        input_ids=range(tokens) if isinstance(tokens, int) else tokens,
        sampling_params=engine_pb2.SamplingParams(**params),
        eos_token_ids=eos,
        simulate=simulate,
    )


def script(*steps: Iterable[int], **options: Any) -> engine_pb2.SimulatedScript:
    return engine_pb2.SimulatedScript(steps=[engine_pb2.SimulatedStep(token_ids=step) for step in steps], **options)


def tokens_of(event: engine_pb2.GenerateEvent, index: int = 0) -> list[int]:
    return [token_id for chunk in event.chunks if chunk.index == index for token_id in chunk.token_ids]


def finish_of(event: engine_pb2.GenerateEvent, index: int = 0) -> list[str]:
    return [chunk.finish_reason for chunk in event.chunks if chunk.index == index and chunk.finish_reason]
