"""One replica of a service, and a share of its load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import grpc


class Client(Protocol):
    """What a balancer needs of a client."""

    async def abort_all(self) -> None:
        """End all requests in flight with ``PeerLost``."""

    async def close(self) -> None: ...


ClientT = TypeVar("ClientT", bound=Client)
InfoT = TypeVar("InfoT")


@dataclass(slots=True)
class Replica(Generic[ClientT, InfoT]):
    """One replica. ``info`` is its description, None while it is not ready; ``in_flight`` counts choices."""

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
