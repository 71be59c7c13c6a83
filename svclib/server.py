"""The process of a service: start, health, drain on SIGTERM, exit.

started   the process listens; health is NOT_SERVING, calls are answered UNAVAILABLE
serving   ``Service.start`` has returned
draining  SIGTERM or SIGINT came: NOT_SERVING at once, running requests may finish within ``drain_seconds``

Exit codes: 0 drained; 1 unexpected error at start; 2 invalid setting, so a restart cannot help.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Final, NoReturn, Protocol

import grpc
import structlog
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from svclib import logging
from svclib.channel import SERVER_OPTIONS
from svclib.config import ServiceSettings, SettingsError
from svclib.health import Health
from svclib.metrics import serve_metrics
from svclib.startup_gate import StartupGate

_HEALTH_SERVICE: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_ALWAYS_OPEN: Final = (f"/{_HEALTH_SERVICE}/", f"/{reflection.SERVICE_NAME}/")
_CLOSE_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)


class Service(Protocol):
    """A service that ``run`` can run."""

    @property
    def name(self) -> str:
        """Short name for logs: ``engine``."""

    @property
    def service_names(self) -> tuple[str, ...]:
        """Full names of its gRPC services."""

    @property
    def registry(self) -> CollectorRegistry:
        """Its metrics."""

    def register(self, server: grpc.aio.Server) -> None:
        """Add its servicers to a server. They are not called before ``start`` has returned."""

    async def start(self, health: Health) -> None:
        """Load everything it needs. Raises ``SettingsError`` if a setting makes that impossible."""

    async def drain(self) -> None:
        """Refuse new requests; returns when the running ones have ended."""

    async def stop(self) -> None:
        """Release all resources. Called once, after ``drain`` or instead of it."""


def run(service: Service, settings: ServiceSettings) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    logging.configure(settings, service.name)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Process(service, settings).run())


class _Process:
    """One run of a service."""

    def __init__(self, service: Service, settings: ServiceSettings) -> None:
        self._service = service
        self._settings = settings
        self._gate = StartupGate(_ALWAYS_OPEN)
        self._is_loading = False

    async def run(self) -> int:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        health = Health(self._service.service_names)
        await health.publish(False)
        try:
            server, port = await self._listen(health)
            metrics = serve_metrics(self._service.registry, self._settings.host, self._settings.metrics_port)
        except (OSError, RuntimeError) as error:
            log.error("cannot listen", error=str(error))
            return 1
        log.info("started", address=f"{_bracketed(self._settings.host)}:{port}", metrics_port=metrics.port)
        try:
            return await self._serve(health, stop)
        finally:
            health.end_watches()
            await server.stop(_CLOSE_SECONDS)
            await self._service.stop()
            metrics.close()
            log.info("stopped")
            if self._is_loading:
                _exit_now()

    async def _listen(self, health: Health) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=(self._gate,))
        health_pb2_grpc.add_HealthServicer_to_server(health.servicer, server)
        self._service.register(server)
        reflection.enable_server_reflection(
            (*self._service.service_names, _HEALTH_SERVICE, reflection.SERVICE_NAME), server
        )
        port = server.add_insecure_port(f"{_bracketed(self._settings.host)}:{self._settings.port}")
        await server.start()
        return server, port

    async def _serve(self, health: Health, stop: asyncio.Event) -> int:
        """From loading to drained. A signal takes effect in every phase."""
        starting = asyncio.create_task(self._service.start(health))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            self._is_loading = True
            starting.cancel()
            await asyncio.wait((starting,))
            return 0
        if code := self._start_failure(starting):
            return code
        self._gate.open = True
        await health.publish(True)
        log.info("serving")
        await stopping
        await self._drain(health)
        return 0

    def _start_failure(self, starting: asyncio.Task[None]) -> int:
        """The exit code after a failed start; 0 if it succeeded."""
        error = starting.exception()
        if error is None:
            return 0
        if isinstance(error, SettingsError):
            log.error("cannot start", error=str(error))
            return 2
        log.error("cannot start", exc_info=error)
        return 1

    async def _drain(self, health: Health) -> None:
        log.info("draining", seconds=self._settings.drain_seconds)
        await health.close()
        try:
            await asyncio.wait_for(self._service.drain(), self._settings.drain_seconds)
        except TimeoutError:
            log.warning("drain time exceeded; ending the requests that still run")


def _exit_now() -> NoReturn:
    """Exit without joining threads: models load in threads, which cannot be interrupted."""
    sys.stderr.flush()
    os._exit(0)


def _bracketed(host: str) -> str:
    """A host as written before ``:port``; IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host
