from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.replicas import health
from gateway.replicas.balancer import Balancer
from gateway.replicas.replica import Replica
from svclib.errors import InternalError, Unavailable
from svclib.liveness import ProbePolicy
from tests.gateway.running import Peer, until
from tests.gateway.scripted import ScriptedEngine


class NamedClient:
    """A client without calls."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.closed = False
        self.num_aborts = 0

    async def abort_all(self) -> None:
        self.num_aborts += 1

    async def close(self) -> None:
        self.closed = True


async def describe(client: NamedClient) -> str:
    return "described"


Names = Balancer[NamedClient, str]


@asynccontextmanager
async def balancer(addresses: list[str], ready: bool = True) -> AsyncIterator[Names]:
    made: Names = Balancer("engine", addresses, NamedClient, describe)
    if ready:
        for replica in replicas(made):
            replica.info = "ready"
    try:
        yield made
    finally:
        await made.stop()


def replicas(made: Names) -> list[Replica[NamedClient, str]]:
    return made._replicas


async def test_no_replica_is_ready() -> None:
    async with balancer(["a:1", "b:1"], ready=False) as made:
        with pytest.raises(Unavailable, match="engine") as caught, made.choose():
            pass
        assert caught.value.retry_after
        assert made.infos == {}
        assert made.addresses == {"a:1": False, "b:1": False}


async def test_least_recently_chosen_among_equals() -> None:
    async with balancer(["a:1", "b:1", "c:1"]) as made:
        seen = []
        for _ in range(6):
            with made.choose() as chosen:
                seen.append(chosen.address)
        assert sorted(seen[:3]) == ["a:1", "b:1", "c:1"]
        assert seen[3:] == seen[:3]


async def test_least_loaded_replica_is_chosen() -> None:
    async with balancer(["a:1", "b:1"]) as made:
        with made.choose(choices=5) as busy, made.choose() as idle:
            assert busy.address != idle.address
            for _ in range(3):
                with made.choose() as chosen:
                    assert chosen.address == idle.address


async def test_avoided_replica_is_chosen_only_without_others() -> None:
    async with balancer(["a:1", "b:1"]) as made:
        with made.choose(choices=9, avoid={"a:1"}) as chosen:
            assert chosen.address == "b:1"
            with made.choose(avoid={"a:1"}) as again:
                assert again.address == "b:1"
    async with balancer(["a:1"]) as made:
        with made.choose(avoid={"a:1"}) as chosen:
            assert chosen.address == "a:1"


async def test_only_ready_replicas_are_chosen() -> None:
    async with balancer(["a:1", "b:1"]) as made:
        replicas(made)[0].info = None
        absent = replicas(made)[0].address
        for _ in range(4):
            with made.choose() as chosen:
                assert chosen.address != absent
        assert made.addresses == {"a:1": absent != "a:1", "b:1": absent != "b:1"}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=30))
def test_load_is_released(steps: list[tuple[bool, int]]) -> None:
    async def run() -> None:
        async with balancer(["a:1", "b:1", "c:1"]) as made:
            held: list[ExitStack] = []
            for leave, choices in steps:
                if leave and held:
                    held.pop(0).close()
                else:
                    held.append(ExitStack())
                    held[-1].enter_context(made.choose(choices=choices))
            for stack in held:
                stack.close()
            assert [replica.in_flight for replica in replicas(made)] == [0, 0, 0]

    asyncio.run(run())


async def test_load_is_released_after_a_failure() -> None:
    async with balancer(["a:1"]) as made:
        with pytest.raises(ValueError, match="x"), made.choose(choices=3):
            raise ValueError("x")
        assert replicas(made)[0].in_flight == 0


async def test_health_of_a_replica_through_its_life() -> None:
    peer = Peer(ScriptedEngine(), serving=False)
    await peer.start()
    made: Names = Balancer("engine", [peer.address], NamedClient, describe)
    made.start()
    assert made.infos == {}
    await peer.health.publish(True)
    await until(lambda: list(made.infos) == ["described"])
    await peer.health.publish(False)
    await until(lambda: made.infos == {})
    await peer.health.publish(True)
    await until(lambda: list(made.infos) == ["described"])
    await peer.stop()
    await until(lambda: made.infos == {})
    peer.serving = True
    await peer.start()
    await until(lambda: list(made.infos) == ["described"])
    client = replicas(made)[0].client
    await made.stop()
    assert client.closed
    await peer.stop()


async def test_replica_without_a_description_is_not_ready() -> None:
    asked = 0

    async def moody(client: NamedClient) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise InternalError
        if asked == 2:
            raise RuntimeError("unexpected")
        return "described late"

    peer = Peer(ScriptedEngine())
    await peer.start()
    made: Names = Balancer("engine", [peer.address], NamedClient, moody)
    made.start()
    await until(lambda: list(made.infos) == ["described late"])
    await made.stop()
    await peer.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hang is noticed after some tenths of a second."""
    monkeypatch.setattr(health, "PROBE_POLICY", ProbePolicy(interval=0.02, timeout=0.2, max_failures=2))


def test_hang_is_noticed_within_three_seconds() -> None:
    assert health.PROBE_POLICY.longest <= 3.0
    assert health.PROBE_POLICY.max_failures > 1, "a gateway that is slow itself would take all replicas for hanging"


async def test_unresponsive_replica_is_not_ready(impatient: None) -> None:
    peer = Peer(ScriptedEngine())
    await peer.start()
    made: Names = Balancer("engine", [peer.address], NamedClient, describe)
    made.start()
    await until(lambda: list(made.infos) == ["described"])
    client = replicas(made)[0].client
    assert client.num_aborts == 0
    peer.pausable.answering.clear()
    await until(lambda: made.infos == {})
    await until(lambda: client.num_aborts > 0)
    peer.pausable.answering.set()
    await until(lambda: list(made.infos) == ["described"])
    assert not client.closed
    await made.stop()
    await peer.stop()


async def test_one_late_answer_keeps_a_replica_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PROBE_POLICY", ProbePolicy(interval=0.02, timeout=0.6, max_failures=2))
    peer = Peer(ScriptedEngine())
    await peer.start()
    made: Names = Balancer("engine", [peer.address], NamedClient, describe)
    made.start()
    await until(lambda: list(made.infos) == ["described"])
    for _ in range(2):
        peer.pausable.answering.clear()
        await asyncio.sleep(0.7)
        peer.pausable.answering.set()
        await asyncio.sleep(0.7)
        assert list(made.infos) == ["described"]
    assert replicas(made)[0].client.num_aborts == 0
    await made.stop()
    await peer.stop()


async def test_restarts_do_not_count_as_unresponsive(impatient: None) -> None:
    """A restarted replica has answered no health check for a while."""
    peer = Peer(ScriptedEngine())
    await peer.start()
    made: Names = Balancer("engine", [peer.address], NamedClient, describe)
    made.start()
    client = replicas(made)[0].client
    for _ in range(3):
        await until(lambda: list(made.infos) == ["described"])
        await peer.stop()
        await until(lambda: made.infos == {})
        await asyncio.sleep(0.5)
        await peer.start()
    await until(lambda: list(made.infos) == ["described"])
    assert client.num_aborts == 0
    await made.stop()
    await peer.stop()
