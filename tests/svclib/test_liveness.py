from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svclib.channel import connect
from svclib.liveness import Patience, grpc_answers, until_silent
from tests.gateway.running import Peer
from tests.gateway.scripted import ScriptedEngine

QUICK = Patience(interval=0.0, answer_seconds=0.001, max_unanswered=3)


async def asked_until_silent(answers: Iterable[bool], patience: Patience = QUICK) -> int:
    """How many questions were asked; after the given answers there are none."""
    given_answers = iter(answers)
    asked = 0

    async def ask(_seconds: float) -> bool:
        nonlocal asked
        asked += 1
        return next(given_answers, False)

    await until_silent(ask, patience)
    return asked


@settings(max_examples=50)
@given(st.lists(st.booleans(), max_size=12))
def test_only_silence_in_a_row_counts(answers: list[bool]) -> None:
    asked = asyncio.run(asked_until_silent(answers))
    heard = [*answers, *[False] * 20][:asked]
    assert heard[-3:] == [False] * 3
    assert not any(heard[start : start + 3] == [False] * 3 for start in range(asked - 3))


async def test_who_is_gone_is_given_as_long_as_who_is_silent() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asked_until_silent([], Patience(interval=0.05, answer_seconds=0.1, max_unanswered=3))
    assert loop.time() - began >= 0.34


@pytest.mark.parametrize("serving", [True, False])
async def test_whatever_health_says_is_an_answer(serving: bool) -> None:
    peer = Peer(ScriptedEngine(), serving=serving)
    await peer.start()
    async with connect(peer.address) as channel:
        assert await grpc_answers(channel, 10)
        peer.pausable.answering.clear()
        assert not await grpc_answers(channel, 0.1)
        peer.pausable.answering.set()
        assert await grpc_answers(channel, 10)
    await peer.stop()


async def test_a_port_that_takes_connections_and_says_nothing_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with connect(f"127.0.0.1:{server.getsockname()[1]}") as channel:
            assert not await grpc_answers(channel, 0.3)


async def test_a_port_where_nobody_listens_does_not_answer() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with connect(f"127.0.0.1:{bound.getsockname()[1]}") as channel:
            assert not await grpc_answers(channel, 0.3)
