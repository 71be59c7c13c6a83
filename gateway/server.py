"""The gateway's process: listen, serve, drain on SIGTERM, exit.

serving   at once; requests get a 503 while the services behind it are not ready
draining  after SIGTERM or SIGINT: ``/ready`` answers 503, no request is admitted, those in flight may finish within
          ``drain_seconds``
exit      0: drained; 1: cannot listen
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

import structlog
import uvicorn
import uvloop

from gateway.app import ENDPOINTS, Endpoint, build_app
from gateway.config import Settings
from gateway.gateway import Gateway
from gateway.http.connection import Connection, ConnectionSettings
from gateway.http.pool import ConnectionPool, raise_file_limit
from gateway.policy.limits import WRITE_BUFFER_BYTES
from svclib import logging
from svclib.errors import Unavailable
from svclib.metrics import serve_metrics

_BACKLOG: Final = 2048
_CLOSE_SECONDS: Final = 2
"""Time for connections to close after their last answer."""

log = structlog.get_logger(__name__)


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    logging.configure(settings, "gateway")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


def _connection_factory(settings: Settings) -> Callable[..., Connection]:
    timeouts = ConnectionSettings(keep_alive=settings.keep_alive_timeout, write_stall=settings.write_timeout)
    pool = ConnectionPool(min(settings.max_connections, raise_file_limit()))
    return partial(Connection, settings=timeouts, pool=pool)


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers."""

    def __init__(self, gateway: Gateway, endpoints: Iterable[Endpoint] = ENDPOINTS) -> None:
        config = uvicorn.Config(
            build_app(gateway, endpoints),
            http=_connection_factory(gateway.settings),  # type: ignore[arg-type]  # any factory of protocols works
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Port 0: any free port. Raises ``OSError``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm (40 ms for each answer in two pieces) only if the protocol is given.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: unread output waits in the gateway, within bounds, not in megabytes of kernel memory.
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, WRITE_BUFFER_BYTES)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def _serve(settings: Settings) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    gateway = Gateway(settings)
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(listen(settings.host, settings.port))
            if settings.metrics_port:
                stack.callback(serve_metrics(gateway.metrics.registry, settings.host, settings.metrics_port).close)
        except OSError as error:
            log.error("cannot listen", error=str(error))
            return 1
        log.info("started", address=f"{settings.host}:{listener.getsockname()[1]}")
        await _run(gateway, listener, stop)
    log.info("stopped")
    return 0


async def _run(gateway: Gateway, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, then drain. Raises the error of an HTTP server that ends by itself."""
    server = HttpServer(gateway)
    gateway.start()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        _tune_garbage_collector()
        await stop.wait()
        await _drain(gateway)
        server.should_exit = True
    await gateway.stop()


def _tune_garbage_collector() -> None:
    """Collect less often: start-up objects stay, and requests make few cycles. Saves a tenth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


async def _drain(gateway: Gateway) -> None:
    seconds = gateway.settings.drain_seconds
    log.info("draining", seconds=seconds, choices=gateway.admission.in_use)
    gateway.close()
    try:
        await asyncio.wait_for(gateway.admission.idle(), seconds)
    except TimeoutError:
        log.warning("drain time exceeded; ending the requests that still run", choices=gateway.admission.in_use)
        gateway.admission.end_all(Unavailable("the gateway is shutting down", retry_after=1.0))
