"""Load balancing over the replicas of one service: least choices in flight first, then least recently chosen.

Only ready replicas are chosen; ``health.py`` keeps track of which are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Generic

import grpc

from gateway.replicas.health import HealthWatch
from gateway.replicas.replica import Chosen, ClientT, InfoT, Replica
from svclib.channel import connect
from svclib.errors import Unavailable


class Balancer(Generic[ClientT, InfoT]):
    """The replicas of the service called ``name``.

    ``make_client`` makes the client of a replica; ``describe`` asks it for the replica's description, and raises
    ``ServiceError`` if there is none.
    """

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        make_client: Callable[[grpc.aio.Channel], ClientT],
        describe: Callable[[ClientT], Awaitable[InfoT]],
    ) -> None:
        self.name = name
        self._describe = describe
        self._watches: list[asyncio.Task[None]] = []
        channels = {address: connect(address) for address in addresses}
        self._order = {address: number for number, address in enumerate(channels)}
        self._replicas: list[Replica[ClientT, InfoT]] = [
            Replica(address, channel, make_client(channel)) for address, channel in channels.items()
        ]
        """The least recently chosen first."""

    def start(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Begin to watch the health of all replicas.

        ``on_change`` is called when a replica has become ready or not ready, or its description has changed.
        """
        watches = [HealthWatch(self.name, replica, self._describe, on_change) for replica in self._replicas]
        self._watches = [asyncio.create_task(watch.run()) for watch in watches]

    async def stop(self) -> None:
        """Disconnect from all replicas; requests in flight end with ``PeerLost``."""
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
        """The clients of all ready replicas."""
        return [replica.client for replica in self._replicas if replica.info is not None]

    @property
    def infos(self) -> dict[InfoT, list[str]]:
        """The descriptions of ready replicas, each with the addresses that share it; the most common one first."""
        found: dict[InfoT, list[str]] = {}
        for replica in sorted(self._replicas, key=lambda replica: self._order[replica.address]):
            if replica.info is not None:
                found.setdefault(replica.info, []).append(replica.address)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def in_flight(self, info: InfoT) -> float:
        """Average number of choices in flight on the replicas with this description."""
        counts = [replica.in_flight for replica in self._replicas if replica.info == info]
        return sum(counts) / len(counts) if counts else float("inf")

    def choose(
        self, *, choices: int = 1, avoid: Set[str] = frozenset(), like: InfoT | None = None
    ) -> Chosen[ClientT, InfoT]:
        """A ready replica with the description ``like`` (None: any), not at an address to ``avoid`` if possible.

        Raises ``Unavailable`` when none is ready.
        """
        ready = [each for each in self._replicas if each.info is not None and like in (None, each.info)]
        if not ready:
            raise Unavailable(f"no {self.name} is ready", retry_after=1.0)
        others = [replica for replica in ready if replica.address not in avoid]
        replica = min(others or ready, key=lambda replica: replica.in_flight)
        self._replicas.remove(replica)
        self._replicas.append(replica)
        return Chosen(replica, choices)
