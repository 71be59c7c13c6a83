"""A bounded number of threads, and a bounded number of jobs that wait for them.

Jobs with large inputs have threads of their own, fewer of them: they take long and much memory, and small ones must
not wait for them.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from svclib.errors import Overloaded, Unavailable
from svclib.memory import trim_memory
from tokenizer_svc.limits import LARGE_INPUT

ResultT = TypeVar("ResultT")


class Pool:
    """Runs jobs that would hold up the event loop."""

    def __init__(self, workers: int, max_waiting: int) -> None:
        self._small = ThreadPoolExecutor(workers, thread_name_prefix="tokenizer")
        self._large = ThreadPoolExecutor(max(1, workers // 2), thread_name_prefix="tokenizer-large")
        self._max_jobs = workers + max_waiting
        self._lock = threading.Lock()
        self._jobs = 0
        self._draining = False

    @property
    def num_jobs(self) -> int:
        """Jobs that run or wait."""
        return self._jobs

    async def run(self, job: Callable[[], ResultT], size: int = 0) -> ResultT:
        """The result of a job. A cancelled caller gives up its place in the queue; a job that runs runs to its end.

        ``size`` is that of its input, as in ``LARGE_INPUT``. Raises ``Overloaded`` when too many wait already.
        """
        if self._draining:
            raise Unavailable("the tokenizer is shutting down", retry_after=1.0)
        self._enter()
        future = self._submit(job, size)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    async def drain(self) -> None:
        """Take no new jobs and return when the others are done."""
        self._draining = True
        for executor in (self._small, self._large):
            await asyncio.to_thread(executor.shutdown, wait=True)

    def close(self) -> None:
        """Take no new jobs and cancel those that wait."""
        self._draining = True
        for executor in (self._small, self._large):
            executor.shutdown(wait=False, cancel_futures=True)

    def _submit(self, job: Callable[[], ResultT], size: int) -> Future[ResultT]:
        run = contextvars.copy_context().run
        if size < LARGE_INPUT:
            return self._small.submit(run, job)
        return self._large.submit(run, _trimming, job)

    def _enter(self) -> None:
        with self._lock:
            if self._jobs >= self._max_jobs:
                raise Overloaded("the tokenizer has too many requests waiting", retry_after=1.0)
            self._jobs += 1

    def _leave(self, _future: Future[Any]) -> None:
        with self._lock:
            self._jobs -= 1


def _trimming(job: Callable[[], ResultT]) -> ResultT:
    try:
        return job()
    finally:
        trim_memory()
