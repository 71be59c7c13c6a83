from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog

from svclib.errors import Overloaded, Unavailable
from tokenizer_svc.pool import Pool


@asynccontextmanager
async def pool(workers: int = 1, max_waiting: int = 1) -> AsyncIterator[Pool]:
    made = Pool(workers, max_waiting)
    try:
        yield made
    finally:
        made.close()


class Busy:
    """A job that runs until it is released."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> str:
        self.started.set()
        assert self.release.wait(10)
        return "done"

    async def has_started(self) -> None:
        assert await asyncio.to_thread(self.started.wait, 10)


async def test_the_result_of_a_job() -> None:
    async with pool() as jobs:
        assert await jobs.run(lambda: threading.current_thread().name.startswith("tokenizer"))
        assert jobs.num_jobs == 0


async def test_the_error_of_a_job() -> None:
    def fail() -> None:
        raise ValueError("no")

    async with pool() as jobs:
        with pytest.raises(ValueError, match="no"):
            await jobs.run(fail)
        assert await jobs.run(lambda: 1) == 1


async def test_a_job_sees_the_context_of_its_call() -> None:
    structlog.contextvars.bind_contextvars(request_id="r1")
    async with pool() as jobs:
        assert (await jobs.run(structlog.contextvars.get_contextvars))["request_id"] == "r1"


async def test_at_the_limit_and_one_above() -> None:
    busy = Busy()
    async with pool(workers=1, max_waiting=1) as jobs:
        running = asyncio.create_task(jobs.run(busy))
        await busy.has_started()
        waiting = asyncio.create_task(jobs.run(lambda: "waited"))
        await asyncio.sleep(0)
        assert jobs.num_jobs == 2
        with pytest.raises(Overloaded) as caught:
            await jobs.run(lambda: "too many")
        assert caught.value.retry_after is not None
        busy.release.set()
        assert (await running, await waiting) == ("done", "waited")
        assert await jobs.run(lambda: "again") == "again"


async def test_the_event_loop_goes_on_while_a_job_runs() -> None:
    busy = Busy()
    async with pool() as jobs:
        running = asyncio.create_task(jobs.run(busy))
        await busy.has_started()
        assert not running.done()
        busy.release.set()
        assert await running == "done"


async def test_a_cancelled_call_gives_up_its_place() -> None:
    busy, ran = Busy(), threading.Event()
    async with pool(workers=1, max_waiting=1) as jobs:
        running = asyncio.create_task(jobs.run(busy))
        await busy.has_started()
        waiting = asyncio.create_task(jobs.run(ran.set))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert jobs.num_jobs == 1
        busy.release.set()
        await running
        await jobs.run(lambda: None)
        assert not ran.is_set()


async def test_a_cancelled_call_whose_job_runs_keeps_its_place_until_that_ends() -> None:
    busy = Busy()
    async with pool(workers=1, max_waiting=0) as jobs:
        running = asyncio.create_task(jobs.run(busy))
        await busy.has_started()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(Overloaded):
            await jobs.run(lambda: None)
        busy.release.set()
        await jobs.drain()
        assert jobs.num_jobs == 0


async def test_draining_waits_for_what_runs_and_waits_and_takes_nothing_new() -> None:
    busy = Busy()
    async with pool() as jobs:
        running = asyncio.create_task(jobs.run(busy))
        await busy.has_started()
        waiting = asyncio.create_task(jobs.run(lambda: "waited"))
        await asyncio.sleep(0)
        draining = asyncio.create_task(jobs.drain())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await jobs.run(lambda: None)
        busy.release.set()
        await draining
        assert (await running, await waiting) == ("done", "waited")
