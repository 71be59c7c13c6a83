"""Limits on bodies being read: time, rate, number, bytes. Fast senders are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from gateway.http.bodies import Bodies, ReadingLimits, client_address
from gateway.http.errors import ClientGone
from svclib.errors import Overloaded, RequestTimeout, Unavailable

WIDE = ReadingLimits(seconds=60, grace_seconds=60, min_bytes_per_second=1, max_readers=100, max_readers_per_address=100)


def receiving(messages: Sequence[Message]) -> Any:
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    return receive


def piece(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Sender:
    """A client that sends given pieces at given times."""

    def __init__(self, bodies: Bodies, address: str = "a") -> None:
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self.task = asyncio.create_task(bodies.read(self._queue.get, address))

    async def send(self, data: bytes, *, more: bool = True) -> None:
        self._queue.put_nowait(piece(data, more))
        for _ in range(5):
            await asyncio.sleep(0)

    async def fate(self) -> str:
        """``reading``, ``read``, or the name of the exception."""
        for _ in range(5):
            await asyncio.sleep(0)
        if not self.task.done():
            return "reading"
        return "read" if self.task.exception() is None else type(self.task.exception()).__name__


@asynccontextmanager
async def senders(bodies: Bodies, *addresses: str) -> AsyncIterator[list[Sender]]:
    all_of_them = []
    for address in addresses:
        all_of_them.append(Sender(bodies, address))
        await asyncio.sleep(0)
        bodies.check_integrity()
    yield all_of_them
    for sender in all_of_them:
        sender.task.cancel()
    await asyncio.gather(*(sender.task for sender in all_of_them), return_exceptions=True)
    bodies.check_integrity()
    assert bodies.num_readers == 0


async def test_bodies_come_in_pieces() -> None:
    bodies = Bodies(WIDE)
    assert await bodies.read(receiving([piece(b"ab", True), piece(b"", True), piece(b"c", False)]), "a") == b"abc"
    assert await bodies.read(receiving([{"type": "http.request"}]), "a") == b""


async def test_disconnect_while_reading_a_body() -> None:
    bodies = Bodies(WIDE)
    with pytest.raises(ClientGone):
        await bodies.read(receiving([piece(b"ab", True), {"type": "http.disconnect"}]), "a")
    bodies.check_integrity()
    assert bodies.num_readers == 0


async def test_body_time_limit() -> None:
    bodies = Bodies(replace(WIDE, seconds=0.05))
    async with senders(bodies, "a") as (sender,):
        with pytest.raises(RequestTimeout, match="not received within"):
            await sender.task


async def test_body_below_the_minimum_rate() -> None:
    """It starts fast enough, but each interval is measured on its own."""
    bodies = Bodies(replace(WIDE, grace_seconds=0.05, min_bytes_per_second=100))
    async with senders(bodies, "a") as (sender,):
        await sender.send(b"x" * 1000)
        with pytest.raises(RequestTimeout, match="slowly"):
            await sender.task


async def test_body_at_the_minimum_rate() -> None:
    bodies = Bodies(replace(WIDE, grace_seconds=0.2, min_bytes_per_second=5))
    async with senders(bodies, "a") as (sender,):
        for _ in range(8):
            await sender.send(b"x")
            await asyncio.sleep(0.05)
        await sender.send(b"", more=False)
        assert await sender.task == b"x" * 8


async def test_no_minimum_rate() -> None:
    bodies = Bodies(replace(WIDE, grace_seconds=0.01, min_bytes_per_second=0))
    async with senders(bodies, "a") as (sender,):
        await asyncio.sleep(0.05)
        assert await sender.fate() == "reading"


async def test_limit_per_address_ends_its_oldest_body() -> None:
    bodies = Bodies(replace(WIDE, max_readers_per_address=3))
    async with senders(bodies, "a", "b", "a", "a") as all_of_them:
        assert [await each.fate() for each in all_of_them] == ["reading"] * 4
        newcomer = Sender(bodies, "a")
        assert await newcomer.fate() == "reading"
        assert [await each.fate() for each in all_of_them] == ["RequestTimeout", "reading", "reading", "reading"]
        await newcomer.send(b"x", more=False)
        assert await newcomer.task == b"x"


async def test_total_limit_ends_the_oldest_body_of_the_address_with_most() -> None:
    bodies = Bodies(replace(WIDE, max_readers=4))
    async with senders(bodies, "quiet", "flood", "flood", "flood", "new") as all_of_them:
        fates = [await each.fate() for each in all_of_them]
        assert fates == ["reading", "RequestTimeout", "reading", "reading", "reading"]


async def test_bytes_at_the_limit_and_one_above() -> None:
    bodies = Bodies(replace(WIDE, max_bytes=20))
    async with senders(bodies, "quiet", "flood", "flood") as (quiet, first, second):
        await quiet.send(b"x" * 4)
        await first.send(b"x" * 8)
        await second.send(b"x" * 8)
        assert [await each.fate() for each in (quiet, first, second)] == ["reading"] * 3
        await quiet.send(b"x")
        assert [await each.fate() for each in (quiet, first, second)] == ["reading", "RequestTimeout", "reading"]
        bodies.check_integrity()


async def test_draining_ends_bodies_being_read() -> None:
    bodies = Bodies(WIDE)
    async with senders(bodies, "a", "b") as all_of_them:
        for each in all_of_them:
            await each.send(b"x")
        bodies.end_all(Unavailable("over"))
        assert [await each.fate() for each in all_of_them] == ["Unavailable"] * 2


async def test_held_bodies_at_the_limit_and_one_above() -> None:
    bodies = Bodies(replace(WIDE, max_held_bytes=20))
    with bodies.holding(10):
        with bodies.holding(10), pytest.raises(Overloaded), bodies.holding(1):
            pass
        with bodies.holding(10):
            pass


@pytest.mark.parametrize(("client", "address"), [(("10.0.0.1", 5), "10.0.0.1"), (None, ""), (("::1", 5), "::1")])
def test_addresses(client: Any, address: str) -> None:
    assert client_address({"type": "http", "client": client}) == address


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.booleans()), max_size=25),
    limits=st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 40)),
)
def test_limits_hold_and_new_bodies_are_accepted(
    steps: list[tuple[str, int, bool]], limits: tuple[int, int, int]
) -> None:
    max_readers, per_address, max_bytes = limits

    async def run() -> None:
        bodies = Bodies(
            replace(WIDE, max_readers=max_readers, max_readers_per_address=per_address, max_bytes=max_bytes)
        )
        async with senders(bodies) as all_of_them:
            for address, size, more in steps:
                newcomer = Sender(bodies, address)
                all_of_them.append(newcomer)
                assert await newcomer.fate() == "reading"
                await newcomer.send(b"x" * size, more=more)
                if size <= max_bytes and not more:
                    assert await newcomer.fate() == "read"
                bodies.check_integrity()
                assert bodies.num_readers <= max_readers

    asyncio.run(run())
