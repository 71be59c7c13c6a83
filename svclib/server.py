"""Being a process: start, tell the truth about health, drain on SIGTERM, exit.

started   the process listens; health is NOT_SERVING, calls are answered UNAVAILABLE
serving   ``Service.start`` has returned
draining  a signal came: NOT_SERVING at once, running requests may finish within ``drain_seconds``
exit 0    drained; 1 an unforeseen fault at start; 2 a setting is wrong, so starting again is no use
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc
import structlog
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from svclib import logging
from svclib.channel import SERVER_OPTIONS
from svclib.config import ServiceSettings, SettingsError
from svclib.errors import ServiceError, Unavailable, public
from svclib.metrics import serve_metrics
from svclib.status import abort

_HEALTH_SERVICE: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_ALWAYS_OPEN: Final = (f"/{_HEALTH_SERVICE}/", f"/{reflection.SERVICE_NAME}/")
_CLOSE_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)

ServicerT = TypeVar("ServicerT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class _EndingHealthServicer(health.aio.HealthServicer):  # type: ignore[name-defined,misc]  # set at import
    """The standard one, whose watches end before the server does.

    One that the stopping server cancels makes gRPC print a traceback behind the reason why the process ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        watching = asyncio.ensure_future(super().Watch(request, context))
        ending = asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait((watching, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            ending.cancel()


class Health:
    """What this process says of itself over ``grpc.health.v1``, for itself and each of its services."""

    def __init__(self, service_names: tuple[str, ...]) -> None:
        self.servicer = _EndingHealthServicer()
        self._names = ("", *service_names)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def set_serving(self, serving: bool) -> None:
        """Change the status; from any thread. Has no effect once the process drains."""
        self._loop.call_soon_threadsafe(self._spawn, serving)

    def _spawn(self, serving: bool) -> None:
        if not self._closed:
            task = self._loop.create_task(self.publish(serving))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def publish(self, serving: bool) -> None:
        """Change the status and return when it can be seen."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._names:
            await self.servicer.set(name, status)

    async def close(self) -> None:
        """Not serving, from now on."""
        self._closed = True
        await self.publish(False)

    def end_watches(self) -> None:
        """The last word on every stream that watches."""
        self.servicer.ended.set()


class Service(Protocol):
    """What ``run`` needs to know of a service."""

    @property
    def name(self) -> str:
        """A short name, for logs: ``engine``."""

    @property
    def service_names(self) -> tuple[str, ...]:
        """Full gRPC names of what it serves."""

    @property
    def registry(self) -> CollectorRegistry:
        """Its metrics."""

    def register(self, server: grpc.aio.Server) -> None:
        """Add its servicers to a server. They are not called before ``start`` has returned."""

    async def start(self, health: Health) -> None:
        """Load whatever is needed. Raises ``SettingsError`` when a setting makes that impossible."""

    async def drain(self) -> None:
        """Take no new requests and return when the running ones have ended."""

    async def stop(self) -> None:
        """Give everything back. Called once, after ``drain`` or instead of it."""


def unary(
    method: Callable[[ServicerT, RequestT, grpc.aio.ServicerContext[Any, Any]], Awaitable[ResponseT]],
) -> Callable[[ServicerT, RequestT, grpc.aio.ServicerContext[Any, Any]], Awaitable[ResponseT]]:
    """Decorate a servicer's unary method: a ``ServiceError`` keeps its message, anything else is logged and hidden."""

    @functools.wraps(method)
    async def guarded(self: ServicerT, request: RequestT, context: grpc.aio.ServicerContext[Any, Any]) -> ResponseT:
        structlog.contextvars.bind_contextvars(request_id=getattr(request, "request_id", ""))
        try:
            return await method(self, request, context)
        except ServiceError as error:
            await abort(context, error)
        except Exception as error:
            log.exception("call failed")
            await abort(context, public(error))

    return guarded


def run(service: Service, settings: ServiceSettings) -> int:
    """Serve until a signal comes. Returns the exit code."""
    logging.configure(settings, service.name)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Process(service, settings).run())


class _NotYet(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Answers UNAVAILABLE for everything but health and reflection until the service has started."""

    def __init__(self) -> None:
        self.open = False

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        handler = await continuation(details)
        if self.open or details.method.startswith(_ALWAYS_OPEN) or handler is None:
            return handler
        return _refusing(handler)


def _refusing(handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
    async def refuse(_request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await abort(context, Unavailable("the service is starting", retry_after=1.0))

    make = grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
    return make(refuse, handler.request_deserializer, handler.response_serializer)


def _exit_now() -> NoReturn:
    """Models are loaded in threads, which nothing can interrupt, and the interpreter would wait for them."""
    sys.stderr.flush()
    os._exit(0)


def _bracketed(host: str) -> str:
    """A host as it stands before ``:port``."""
    return f"[{host}]" if ":" in host else host


class _Process:
    """One run of a service."""

    def __init__(self, service: Service, settings: ServiceSettings) -> None:
        self._service = service
        self._settings = settings
        self._gate = _NotYet()
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
        """From loading to drained. A signal is obeyed in every phase."""
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
            log.warning("requests were still running when the drain time ended")
