"""gRPC services on loopback ports, and a gateway in front of them with a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import grpc
import httpx2
from grpc_health.v1 import health_pb2_grpc
from openai import AsyncOpenAI

from detokenizer_svc.config import DetokenizerSettings
from detokenizer_svc.server import DetokenizerService
from engine_svc.config import Settings as EngineSettings
from engine_svc.server import EngineService
from gateway.app import ENDPOINTS, Endpoint
from gateway.config import Settings
from gateway.gateway import Gateway
from gateway.server import HttpServer, listen
from svclib.channel import SERVER_OPTIONS
from svclib.health import Health
from svclib.server import Service
from tests.gateway.scripted import ScriptedDetokenizer, ScriptedEngine, ScriptedTokenizer
from tokenizer_svc.config import TokenizerSettings
from tokenizer_svc.server import TokenizerService

MODEL = "org/scripted"
HI: list[Any] = [{"role": "user", "content": "hi"}]


class Servicer(Protocol):
    def add_to(self, server: grpc.aio.Server) -> None: ...


class PausableHealth(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # untyped
    """Health checks that can hang. Statuses that were sent before stay, as with a process whose event loop hangs."""

    def __init__(self, health: Any) -> None:
        self._health = health
        self.answering = asyncio.Event()
        self.answering.set()

    async def Check(self, request: Any, context: Any) -> Any:
        await self.answering.wait()
        return await self._health.Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:
        await self.answering.wait()
        await self._health.Watch(request, context)


@dataclass(slots=True)
class Peer:
    """A gRPC server that can be killed and restarted at the same address, and whose health checks can hang."""

    servicer: Servicer
    port: int = 0
    serving: bool = True
    health: Health = field(init=False)
    pausable: PausableHealth = field(init=False)
    server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.health = Health(())
        self.server = grpc.aio.server(options=SERVER_OPTIONS)
        self.pausable = PausableHealth(self.health.servicer)
        health_pb2_grpc.add_HealthServicer_to_server(self.pausable, self.server)
        self.servicer.add_to(self.server)
        self.port = self.server.add_insecure_port(self.address)
        await self.server.start()
        await self.health.publish(self.serving)

    async def stop(self) -> None:
        """Stop at once, as after a kill."""
        if self.server is not None:
            await self.server.stop(0)
            self.server = None


@dataclass(slots=True)
class Stack:
    """A gateway with its peers by service, listening at ``url``."""

    gateway: Gateway
    url: str
    http_server: HttpServer
    peers: dict[str, list[Peer]]

    def client(self, **options: Any) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=20, **options)

    def http(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, timeout=20, trust_env=False)

    def peer(self, service: str) -> Peer:
        return self.peers[service][0]

    async def chat(self, **fields: Any) -> httpx2.Response:
        """The response to one chat completion request."""
        async with self.http() as client:
            return await client.post("/v1/chat/completions", json={"model": MODEL, "messages": HI} | fields)

    async def until_ready(self) -> None:
        await until(lambda: not_raising(self.gateway.check_ready))

    async def until_idle(self) -> None:
        """Wait until no request is left in any service."""
        await until(lambda: self.gateway.admission.in_use == 0)
        for service in ("engine", "detokenizer"):
            for peer in self.peers[service]:
                if isinstance(peer.servicer, ScriptedEngine | ScriptedDetokenizer):
                    sessions = peer.servicer.sessions
                    await until(lambda sessions=sessions: sessions.num_open == 0)  # type: ignore[misc]


def not_raising(check: Callable[[], object]) -> bool:
    try:
        check()
    except Exception:
        return False
    return True


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # conditions of many kinds, without events
            await asyncio.sleep(0.005)


@asynccontextmanager
async def gateway_before(
    addresses: dict[str, str], *, endpoints: Iterable[Endpoint] = ENDPOINTS, **settings: Any
) -> AsyncIterator[tuple[Gateway, HttpServer, str]]:
    """A gateway on a free port, for the peers at these addresses (comma lists)."""
    given = {f"{service}_addresses": address for service, address in addresses.items()}
    gateway = Gateway(Settings(**({"served_model_name": MODEL} | given | settings)))
    gateway.start()
    listener = listen("127.0.0.1", 0)
    server = HttpServer(gateway, endpoints)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started)
        yield gateway, server, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        await gateway.stop()


@asynccontextmanager
async def scripted_stack(
    engine: ScriptedEngine | list[ScriptedEngine] | None = None,
    detokenizer: ScriptedDetokenizer | list[ScriptedDetokenizer] | None = None,
    tokenizer: ScriptedTokenizer | list[ScriptedTokenizer] | None = None,
    *,
    ready: bool = True,
    **settings: Any,
) -> AsyncIterator[Stack]:
    """A gateway in front of scripted services; correct ones where none are given."""
    peers = {
        "engine": _peers(engine or ScriptedEngine()),
        "detokenizer": _peers(detokenizer or ScriptedDetokenizer()),
        "tokenizer": _peers(tokenizer or ScriptedTokenizer()),
    }
    async with AsyncExitStack() as stack:
        for peer in (peer for group in peers.values() for peer in group):
            await peer.start()
            stack.push_async_callback(peer.stop)
        addresses = {service: ",".join(peer.address for peer in group) for service, group in peers.items()}
        gateway, server, url = await stack.enter_async_context(gateway_before(addresses, **settings))
        running = Stack(gateway, url, server, peers)
        if ready:
            await until(lambda: all(all(group.values()) for group in gateway.peers().values()))
        yield running


def _peers(servicers: Any) -> list[Peer]:
    return [Peer(servicer) for servicer in (servicers if isinstance(servicers, list) else [servicers])]


class _Registered:
    """A real service as a ``Servicer``."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def add_to(self, server: grpc.aio.Server) -> None:
        self.service.register(server)


@asynccontextmanager
async def real_stack(
    *, tokenizers: Mapping[str, str] = MappingProxyType({}), ready: bool = True, **settings: Any
) -> AsyncIterator[Stack]:
    """A gateway in front of the real services with the simulated model, all in this process.

    ``tokenizers`` are the ``tokenizer`` settings of services; the others have the simulated model's.
    """
    of = lambda service: tokenizers.get(service, "")
    services: dict[str, Service] = {
        "tokenizer": TokenizerService(TokenizerSettings(model="simulated", tokenizer=of("tokenizer"))),
        "engine": EngineService(EngineSettings(model="simulated", tokenizer=of("engine"))),
        "detokenizer": DetokenizerService(DetokenizerSettings(model="simulated", tokenizer=of("detokenizer"))),
    }
    peers = {name: [Peer(_Registered(service), serving=False)] for name, service in services.items()}
    async with AsyncExitStack() as stack:
        for name, service in services.items():
            (peer,) = peers[name]
            await peer.start()
            await service.start(peer.health)
            stack.push_async_callback(service.stop)
            stack.push_async_callback(peer.stop)
            await peer.health.publish(True)
        addresses = {name: group[0].address for name, group in peers.items()}
        gateway, server, url = await stack.enter_async_context(gateway_before(addresses, **settings))
        running = Stack(gateway, url, server, peers)
        await until(lambda: all(all(group.values()) for group in gateway.peers().values()))
        if ready:
            await running.until_ready()
        yield running
