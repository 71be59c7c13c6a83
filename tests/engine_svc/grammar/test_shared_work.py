from __future__ import annotations

import asyncio

import pytest

from engine_svc.grammar.shared_work import SharedWork


class Work:
    """Counts its starts and ends when the test says so."""

    def __init__(self) -> None:
        self.num_started = 0
        self.was_cancelled = False
        self.go = asyncio.Event()

    async def run(self) -> int:
        self.num_started += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return self.num_started


async def callers(shared: SharedWork[str, int], work: Work, count: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(shared.result("key", work.run)) for _ in range(count)]
    await asyncio.sleep(0.01)
    return tasks


async def test_work_is_done_once_for_all_who_wait_for_it() -> None:
    shared, work = SharedWork[str, int](), Work()
    tasks = await callers(shared, work, 3)
    work.go.set()
    assert await asyncio.gather(*tasks) == [1, 1, 1]
    assert await shared.result("key", work.run) == 2


async def test_it_goes_on_until_the_last_caller_has_left() -> None:
    shared, work = SharedWork[str, int](), Work()
    tasks = await callers(shared, work, 2)
    tasks[0].cancel()
    await asyncio.sleep(0.01)
    assert not work.was_cancelled
    tasks[1].cancel()
    await asyncio.sleep(0.01)
    assert work.was_cancelled
    work.go.set()
    assert await shared.result("key", work.run) == 2


async def test_every_caller_gets_the_error() -> None:
    async def fail() -> int:
        raise ZeroDivisionError

    shared = SharedWork[str, int]()
    found = await asyncio.gather(*(shared.result("key", fail) for _ in range(2)), return_exceptions=True)
    assert [type(one) for one in found] == [ZeroDivisionError] * 2
    with pytest.raises(ZeroDivisionError):
        await shared.result("key", fail)
