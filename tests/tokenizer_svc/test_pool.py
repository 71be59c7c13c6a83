from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest
import structlog

from svclib.errors import Overloaded, Unavailable
from tests.tokenizer_svc import tiny
from tokenizer_svc.limits import LARGE_INPUT
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


async def test_large_jobs_leave_threads_to_small_ones() -> None:
    large = [Busy() for _ in range(4)]
    async with pool(workers=2, max_waiting=10) as jobs:
        running = [asyncio.create_task(jobs.run(job, LARGE_INPUT)) for job in large]
        await large[0].has_started()
        assert await jobs.run(lambda: "small", LARGE_INPUT - 1) == "small"
        assert jobs.num_jobs == len(large)
        for job in large:
            job.release.set()
        assert await asyncio.gather(*running) == ["done"] * len(large)


@pytest.mark.parametrize(("workers", "at_once"), [(1, 1), (2, 1), (4, 2), (5, 2)])
async def test_half_as_many_large_jobs_at_once(workers: int, at_once: int) -> None:
    large = [Busy() for _ in range(at_once + 1)]
    async with pool(workers=workers, max_waiting=10) as jobs:
        running = [asyncio.create_task(jobs.run(job, LARGE_INPUT)) for job in large]
        for job in large[:at_once]:
            await job.has_started()
        assert not large[-1].started.is_set()
        for job in large:
            job.release.set()
        await asyncio.gather(*running)


async def test_draining_waits_for_large_jobs_too() -> None:
    busy = Busy()
    async with pool() as jobs:
        running = asyncio.create_task(jobs.run(busy, LARGE_INPUT))
        await busy.has_started()
        draining = asyncio.create_task(jobs.drain())
        await asyncio.sleep(0.01)
        assert not draining.done()
        busy.release.set()
        await draining
        assert await running == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is asked to give memory back")
async def test_memory_of_large_jobs_is_returned_to_the_system() -> None:
    process, tokenizer, text = psutil.Process(), tiny.byte_level(), "The quick brown fox jumps. " * 50_000

    def encode() -> int:
        return len(tokenizer.encode_batch_fast([text])[0].ids)

    async with pool(workers=4, max_waiting=10) as jobs:
        before = process.memory_info().rss
        for _ in range(2):
            await asyncio.gather(*(jobs.run(encode, len(text)) for _ in range(2)))
        assert process.memory_info().rss - before < 64_000_000


async def test_the_event_loop_is_not_blocked_while_a_job_runs() -> None:
    busy = Busy()
    async with pool() as jobs:
        running = asyncio.create_task(jobs.run(busy))
        await busy.has_started()
        assert not running.done()
        busy.release.set()
        assert await running == "done"


async def test_cancelling_removes_a_waiting_call_from_the_queue() -> None:
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


async def test_a_cancelled_call_counts_until_its_running_job_ends() -> None:
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


async def test_draining_waits_for_all_jobs_and_refuses_new_ones() -> None:
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
