from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svclib.channel import connect
from svclib.liveness import ProbePolicy, grpc_responds, until_unresponsive
from tests.gateway.running import Peer
from tests.gateway.scripted import ScriptedEngine

QUICK = ProbePolicy(interval=0.0, timeout=0.001, max_failures=3)


async def num_probes_until_unresponsive(answers: Iterable[bool], patience: ProbePolicy = QUICK) -> int:
    """Number of probes; every probe after the given answers fails."""
    given_answers = iter(answers)
    asked = 0

    async def ask(_seconds: float) -> bool:
        nonlocal asked
        asked += 1
        return next(given_answers, False)

    await until_unresponsive(ask, patience)
    return asked


@settings(max_examples=50)
@given(st.lists(st.booleans(), max_size=12))
def test_only_consecutive_failures_count(answers: list[bool]) -> None:
    asked = asyncio.run(num_probes_until_unresponsive(answers))
    heard = [*answers, *[False] * 20][:asked]
    assert heard[-3:] == [False] * 3
    assert not any(heard[start : start + 3] == [False] * 3 for start in range(asked - 3))


async def test_a_refused_probe_takes_as_long_as_a_timed_out_one() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await num_probes_until_unresponsive([], ProbePolicy(interval=0.05, timeout=0.1, max_failures=3))
    assert loop.time() - began >= 0.34


@pytest.mark.parametrize("serving", [True, False])
async def test_any_health_status_is_a_response(serving: bool) -> None:
    peer = Peer(ScriptedEngine(), serving=serving)
    await peer.start()
    async with connect(peer.address) as channel:
        assert await grpc_responds(channel, 10)
        peer.pausable.answering.clear()
        assert not await grpc_responds(channel, 0.1)
        peer.pausable.answering.set()
        assert await grpc_responds(channel, 10)
    await peer.stop()


async def test_a_listener_that_sends_nothing_does_not_respond() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with connect(f"127.0.0.1:{server.getsockname()[1]}") as channel:
            assert not await grpc_responds(channel, 0.3)


async def test_a_port_without_a_listener_does_not_respond() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with connect(f"127.0.0.1:{bound.getsockname()[1]}") as channel:
            assert not await grpc_responds(channel, 0.3)
