"""The replicas of one service: who is ready, and whose turn it is.

Each replica is watched over ``grpc.health.v1``. It counts as ready once it says SERVING and has described itself, so
whoever is chosen is also known, and for as long as it answers when it is asked: one that hangs is not ready either, and
what runs on it is given up. The one with the least work is chosen, and among equals the one that waited longest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import grpc
import structlog

from gateway.replicas.health import PeerSilent, check_answers, watch_health
from svclib.channel import connect
from svclib.errors import ServiceError, Unavailable

_RETRY_SECONDS: Final = 0.2

log = structlog.get_logger(__name__)


class Client(Protocol):
    """What a balancer needs of a client."""

    async def give_up(self) -> None: ...

    async def close(self) -> None: ...


ClientT = TypeVar("ClientT", bound=Client)
InfoT = TypeVar("InfoT")


@dataclass(slots=True)
class Replica(Generic[ClientT, InfoT]):
    """One replica. ``info`` is what it says of itself, None while it is not ready; ``in_flight`` counts choices."""

    address: str
    channel: grpc.aio.Channel
    client: ClientT
    info: InfoT | None = None
    in_flight: int = 0


class Chosen(Generic[ClientT, InfoT]):
    """A ready replica, which has ``choices`` more in flight for as long as the context lasts."""

    __slots__ = ("_choices", "_replica")

    def __init__(self, replica: Replica[ClientT, InfoT], choices: int) -> None:
        self._replica = replica
        self._choices = choices

    @property
    def address(self) -> str:
        return self._replica.address

    @property
    def client(self) -> ClientT:
        return self._replica.client

    def __enter__(self) -> Self:
        self._replica.in_flight += self._choices
        return self

    def __exit__(self, *_: object) -> None:
        self._replica.in_flight -= self._choices


class Balancer(Generic[ClientT, InfoT]):
    """The replicas of the service called ``name``.

    ``make_client`` makes the client of one; ``describe`` asks it what it is, and raises ``ServiceError`` if it cannot.
    """

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        make_client: Callable[[grpc.aio.Channel], ClientT],
        describe: Callable[[ClientT], Awaitable[InfoT]],
    ) -> None:
        self.name = name
        self.on_change: Callable[[], None] = lambda: None
        """Called when a replica has become ready, or ceased to be, or says something else of itself."""
        self._describe = describe
        self._watches: list[asyncio.Task[None]] = []
        channels = {address: connect(address) for address in addresses}
        self._order = {address: number for number, address in enumerate(channels)}
        self._replicas: list[Replica[ClientT, InfoT]] = [
            Replica(address, channel, make_client(channel)) for address, channel in channels.items()
        ]

    def start(self) -> None:
        """Begin to watch."""
        self._watches = [asyncio.create_task(self._watch(replica)) for replica in self._replicas]

    async def stop(self) -> None:
        """Let go of all replicas; what runs on them ends with ``PeerLost``."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for replica in self._replicas:
            await replica.client.close()
            await replica.channel.close(None)

    @property
    def addresses(self) -> dict[str, bool]:
        """Whether the replica at each address is ready."""
        return {replica.address: replica.info is not None for replica in self._replicas}

    @property
    def ready(self) -> list[ClientT]:
        """The clients of all replicas that are ready."""
        return [replica.client for replica in self._replicas if replica.info is not None]

    @property
    def infos(self) -> dict[InfoT, list[str]]:
        """What ready replicas say of themselves, and the addresses of those who say the same; most of them first."""
        found: dict[InfoT, list[str]] = {}
        for replica in sorted(self._replicas, key=lambda replica: self._order[replica.address]):
            if replica.info is not None:
                found.setdefault(replica.info, []).append(replica.address)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def in_flight(self, info: InfoT) -> float:
        """Choices of each replica that says this of itself, on average."""
        counts = [replica.in_flight for replica in self._replicas if replica.info == info]
        return sum(counts) / len(counts) if counts else float("inf")

    def choose(
        self, *, choices: int = 1, avoid: Set[str] = frozenset(), like: InfoT | None = None
    ) -> Chosen[ClientT, InfoT]:
        """Give work to a replica; to one at none of the addresses to ``avoid`` if there is one.

        ``like`` is what it must say of itself; None: anything. Raises ``Unavailable`` when none is ready.
        """
        ready = [each for each in self._replicas if each.info is not None and like in (None, each.info)]
        if not ready:
            raise Unavailable(f"no {self.name} is ready", retry_after=1.0)
        others = [replica for replica in ready if replica.address not in avoid]
        replica = min(others or ready, key=lambda replica: replica.in_flight)
        self._replicas.remove(replica)
        self._replicas.append(replica)
        return Chosen(replica, choices)

    async def _watch(self, replica: Replica[ClientT, InfoT]) -> None:
        """Keep ``info`` true, for ever."""
        while True:
            try:
                await self._follow(replica)
            except PeerSilent:
                self._note(replica, None, why="it does not answer")
                await replica.client.give_up()
            except grpc.aio.AioRpcError as error:
                log.debug("health unknown", peer=self.name, address=replica.address, code=error.code().name)
            except ServiceError as error:
                log.warning("failed to fetch replica info", peer=self.name, address=replica.address, error=str(error))
            except Exception:
                log.exception("watching failed", peer=self.name, address=replica.address)
            self._note(replica, None)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self, replica: Replica[ClientT, InfoT]) -> None:
        """Keep ``info`` true for as long as the connection stands. Raises ``PeerSilent`` when nothing comes over it."""
        async with aclosing(watch_health(replica.channel)) as health:
            async for serving in health:
                await self._hear(replica, serving)
                # It has answered once, and so must go on answering.
                await _first_of(self._listen(replica, health), check_answers(replica.channel))

    async def _listen(self, replica: Replica[ClientT, InfoT], health: AsyncIterator[bool]) -> None:
        async for serving in health:
            await self._hear(replica, serving)

    async def _hear(self, replica: Replica[ClientT, InfoT], serving: bool) -> None:
        self._note(replica, await self._describe(replica.client) if serving else None)

    def _note(self, replica: Replica[ClientT, InfoT], info: InfoT | None, why: str | None = None) -> None:
        before, replica.info = replica.info, info
        if (info is None) != (before is None):
            reason = {} if why is None else {"why": why}
            event = "peer is not ready" if info is None else "peer is ready"
            log.info(event, peer=self.name, address=replica.address, **reason)
        if info != before:
            self.on_change()


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Do all at once, until one of them is done. Raises what that one raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
