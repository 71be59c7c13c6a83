from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation.merge import MAX_WAITING, Merge


async def source(*items: int, error: Exception | None = None, turns: int = 0) -> AsyncIterator[int]:
    for item in items:
        for _ in range(turns):
            await asyncio.sleep(0)
        yield item
    if error is not None:
        raise error


async def read(merge: Merge[int]) -> list[list[int]]:
    async with merge:
        return [batch async for batch in merge]


async def test_no_sources() -> None:
    assert await read(Merge()) == []


async def test_a_batch_is_all_that_waits() -> None:
    assert await read(Merge(source(1, 2, 3))) == [[1, 2, 3]]


@given(st.lists(st.tuples(st.lists(st.integers(), max_size=200), st.integers(0, 3)), max_size=4))
def test_nothing_is_lost_and_each_source_keeps_its_order(sources: list[tuple[list[int], int]]) -> None:
    async def tagged(tag: int, items: list[int], turns: int) -> AsyncIterator[tuple[int, int]]:
        async for item in source(*items, turns=turns):
            yield tag, item

    async def run() -> list[tuple[int, int]]:
        async with Merge(*(tagged(tag, *given) for tag, given in enumerate(sources))) as merge:
            return [item async for batch in merge for item in batch]

    seen = asyncio.run(run())
    for tag, (items, _) in enumerate(sources):
        assert [item for own, item in seen if own == tag] == items


async def test_what_came_before_an_error_is_delivered() -> None:
    seen: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        async with Merge(source(1, 2, error=ValueError("broken"))) as merge:
            async for batch in merge:
                seen += batch
    assert seen == [1, 2]


async def test_one_error_ends_all() -> None:
    stopped = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            await asyncio.sleep(60)
            yield 1
        finally:
            stopped.set()

    with pytest.raises(ValueError, match="broken"):
        async with Merge(endless(), source(error=ValueError("broken"))) as merge:
            await anext(merge)
    assert stopped.is_set()


async def test_leaving_early_stops_the_sources() -> None:
    stopped = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            stopped.set()

    async with Merge(endless()) as merge:
        assert (await anext(merge))[0] == 1
    assert stopped.is_set()


async def test_a_slow_reader_stops_the_sources_from_running_ahead() -> None:
    produced = 0

    async def eager() -> AsyncIterator[int]:
        nonlocal produced
        for number in range(1000):
            produced += 1
            yield number

    async with Merge(eager(), eager()) as merge:
        for _ in range(50):
            await asyncio.sleep(0)
        assert produced <= MAX_WAITING + 2
        seen = [number async for batch in merge for number in batch]
    assert sorted(seen) == sorted([*range(1000)] * 2)


async def test_a_source_that_gives_nothing_is_read_on_only_when_the_reader_keeps_up() -> None:
    fed = 0

    async def feed() -> AsyncIterator[int | None]:
        nonlocal fed
        while True:
            fed += 1
            yield None
            await asyncio.sleep(0)

    async with Merge(feed(), source(*range(2 * MAX_WAITING))) as merge:
        await anext(merge)
        for _ in range(300):
            await asyncio.sleep(0)
        stopped_at = fed
        for _ in range(300):
            await asyncio.sleep(0)
        assert fed == stopped_at
        await anext(merge)
        for _ in range(3):
            await asyncio.sleep(0)
        assert fed > stopped_at
