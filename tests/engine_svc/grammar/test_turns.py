from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine_svc.grammar.turns import Turns

SHARE = 10.0


class Table:
    """Turns on a clock that the test sets, and a list of what happened in order."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.turns = Turns(count, SHARE)
        self.events: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._take(name))
        await self.settle()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.settle()

    async def at(self, seconds: float) -> None:
        self.now = seconds
        self.turns.check()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _take(self, name: str) -> None:
        began_at: list[float] = []
        async with self.turns.turn(
            lambda: self.now - began_at[0] if began_at else 0.0, lambda: self.events.append(f"stop {name}")
        ):
            began_at.append(self.now)
            self.events.append(name)
            await self.ends[name].wait()


@asynccontextmanager
async def table(count: int) -> AsyncIterator[Table]:
    table = Table(count)
    yield table
    for task in table.tasks.values():
        task.cancel()
    await asyncio.gather(*table.tasks.values(), return_exceptions=True)


async def test_a_limited_number_at_a_time_first_come_first_served() -> None:
    async with table(2) as one:
        await one.start("a", "b", "c", "d")
        assert (one.events, one.turns.num_waiting) == (["a", "b"], 2)
        await one.end("b")
        await one.end("a")
        assert (one.events, one.turns.num_waiting) == (["a", "b", "c", "d"], 0)


async def test_a_turn_has_no_limit_while_no_other_waits() -> None:
    async with table(2) as one:
        await one.start("a", "b")
        await one.at(100 * SHARE)
        assert one.events == ["a", "b"]


async def test_the_oldest_beyond_its_share_is_stopped_once_for_each_that_waits() -> None:
    async with table(3) as one:
        await one.start("a")
        await one.at(1)
        await one.start("b", "c")
        await one.at(SHARE + 0.5)
        assert "stop a" not in one.events
        await one.start("d")
        assert one.events == ["a", "b", "c", "stop a"]
        await one.at(SHARE + 2)
        assert one.events == ["a", "b", "c", "stop a"]
        await one.start("e")
        assert one.events == ["a", "b", "c", "stop a", "stop b"]
        await one.end("a")
        await one.end("b")
        assert one.events[-2:] == ["d", "e"]


async def test_within_its_share_a_turn_is_not_stopped() -> None:
    async with table(1) as one:
        await one.start("a", "b")
        await one.at(SHARE - 1)
        assert one.events == ["a"]
        await one.at(SHARE)
        assert one.events == ["a", "stop a"]


async def test_what_has_run_longest_is_stopped_even_if_its_turn_came_later() -> None:
    turns, stopped, end = Turns(2, SHARE), list[str](), asyncio.Event()

    async def hold(name: str, seconds: float) -> None:
        async with turns.turn(lambda: seconds, lambda: stopped.append(name)):
            await end.wait()

    holding = [asyncio.create_task(hold(*item)) for item in [("a", 0.0), ("b", SHARE), ("c", 0.0)]]
    for _ in range(10):
        await asyncio.sleep(0)
    assert stopped == ["b"]
    end.set()
    await asyncio.gather(*holding)


async def test_a_turn_that_comes_to_its_share_is_stopped_without_another_arrival() -> None:
    turns, stopped, began_at = Turns(1, 0.01), asyncio.Event(), time.monotonic()

    async def hold() -> None:
        async with turns.turn(lambda: time.monotonic() - began_at, stopped.set):
            await stopped.wait()

    async def follow() -> None:
        async with turns.turn(lambda: 0.0, lambda: None):
            pass

    await asyncio.wait_for(asyncio.gather(hold(), follow()), 30)


async def test_a_cancelled_one_takes_no_turn_and_gives_its_own_back() -> None:
    async with table(1) as one:
        await one.start("a", "b", "c", "d")
        one.tasks["b"].cancel()
        one.ends["a"].set()
        await one.settle()
        assert one.events == ["a", "c"]
        one.tasks["c"].cancel()
        await one.settle()
        assert one.events == ["a", "c", "d"]


async def test_a_turn_given_to_a_cancelled_one_goes_to_the_next() -> None:
    async with table(1) as one:
        await one.start("a", "b", "c")
        one.turns._give_back()  # b is given the turn, and has not seen it yet
        one.tasks["b"].cancel()
        await one.settle()
        assert one.events == ["a", "c"]


async def test_an_error_gives_the_turn_back() -> None:
    turns = Turns(1, SHARE)
    with pytest.raises(ZeroDivisionError):
        async with turns.turn(lambda: 0.0, lambda: None):
            raise ZeroDivisionError
    async with turns.turn(lambda: 0.0, lambda: None):
        assert turns.num_waiting == 0
