"""Keeping the description of a replica up to date, and with it whether the replica is ready.

A replica is ready once ``grpc.health.v1`` reports SERVING and ``describe`` has answered, and for as long as it answers
health checks. A replica that hangs keeps its connection and its last status, so it is checked at an interval, with a
deadline. When the checks are not answered, the requests in flight on it are aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.replicas.replica import ClientT, InfoT, Replica
from svclib.errors import ServiceError
from svclib.liveness import ProbePolicy, grpc_responds, until_unresponsive

PROBE_POLICY: Final = ProbePolicy(interval=1.0, timeout=1.0, max_failures=2)
"""A replica that hangs is noticed within three seconds."""
_RETRY_SECONDS: Final = 0.2

log = structlog.get_logger(__name__)


class ReplicaUnresponsive(Exception):
    """The connection is open, but health checks are not answered."""


@dataclass(frozen=True, slots=True)
class HealthWatch(Generic[ClientT, InfoT]):
    """Watches one replica of the service called ``peer``.

    ``describe`` asks a client for the replica's description, and raises ``ServiceError``. ``on_change`` is called when
    the description, or whether there is one, has changed.
    """

    peer: str
    replica: Replica[ClientT, InfoT]
    describe: Callable[[ClientT], Awaitable[InfoT]]
    on_change: Callable[[], None]

    async def run(self) -> None:
        """Keep ``info`` of the replica up to date, until cancelled."""
        while True:
            try:
                await self._follow()
            except ReplicaUnresponsive:
                self._note(None, why="health checks are not answered")
                await self.replica.client.abort_all()
            except grpc.aio.AioRpcError as error:
                log.debug("health unknown", **self._where(), code=error.code().name)
            except ServiceError as error:
                log.warning("failed to fetch replica info", **self._where(), error=str(error))
            except Exception:
                log.exception("health watch failed", **self._where())
            self._note(None)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self) -> None:
        """Returns when the connection is lost. Raises ``ReplicaUnresponsive`` when it is open and the replica hangs."""
        async with aclosing(_statuses(self.replica.channel)) as statuses:
            async for serving in statuses:
                await self._update(serving)
                # Liveness is checked only after the first answer.
                await _first_of(self._follow_statuses(statuses), _check_liveness(self.replica.channel))

    async def _follow_statuses(self, statuses: AsyncIterator[bool]) -> None:
        async for serving in statuses:
            await self._update(serving)

    async def _update(self, serving: bool) -> None:
        self._note(await self.describe(self.replica.client) if serving else None)

    def _note(self, info: InfoT | None, why: str | None = None) -> None:
        before, self.replica.info = self.replica.info, info
        if (info is None) != (before is None):
            reason = {} if why is None else {"why": why}
            event = "peer is not ready" if info is None else "peer is ready"
            log.info(event, **self._where(), **reason)
        if info != before:
            self.on_change()

    def _where(self) -> dict[str, str]:
        return {"peer": self.peer, "address": self.replica.address}


async def _statuses(channel: grpc.aio.Channel) -> AsyncGenerator[bool, None]:
    """Whether the replica serves, now and at each change. Ends, or raises ``AioRpcError``, when it is lost."""
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
    try:
        async for answer in call:
            yield answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        call.cancel()


async def _check_liveness(channel: grpc.aio.Channel) -> None:
    """Send health checks until they are not answered, then raise ``ReplicaUnresponsive``."""
    await until_unresponsive(partial(grpc_responds, channel), PROBE_POLICY)
    raise ReplicaUnresponsive


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run all of them until one is done, and cancel the others. Raises what that one raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
