"""The health status of this process over ``grpc.health.v1``."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2


class _HealthServicer(health.aio.HealthServicer):  # type: ignore[name-defined,misc]  # set at import
    """The standard servicer, with ``Watch`` streams that end before the server stops.

    If the server cancels them as it stops, gRPC prints a traceback after the reason why the process exits.
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
    """The health status of the process and of each gRPC service in it."""

    def __init__(self, service_names: tuple[str, ...]) -> None:
        self.servicer = _HealthServicer()
        self._names = ("", *service_names)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def set_serving(self, serving: bool) -> None:
        """Change the status. Thread-safe; no effect once the process drains."""
        self._loop.call_soon_threadsafe(self._spawn, serving)

    def _spawn(self, serving: bool) -> None:
        if not self._closed:
            task = self._loop.create_task(self.publish(serving))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def publish(self, serving: bool) -> None:
        """Change the status; returns when clients can see it."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._names:
            await self.servicer.set(name, status)

    async def close(self) -> None:
        """Set NOT_SERVING for good."""
        self._closed = True
        await self.publish(False)

    def end_watches(self) -> None:
        """End every ``Watch`` stream."""
        self.servicer.ended.set()
