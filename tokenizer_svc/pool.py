"""A bounded thread pool with a bounded queue.

Jobs with large inputs have their own, fewer threads: they take long and use much memory, and small jobs must not wait
for them.
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
    """Runs jobs that would block the event loop."""

    def __init__(self, workers: int, max_waiting: int) -> None:
        self._small = ThreadPoolExecutor(workers, thread_name_prefix="tokenizer")
        self._large = ThreadPoolExecutor(max(1, workers // 2), thread_name_prefix="tokenizer-large")
        self._max_jobs = workers + max_waiting
        self._lock = threading.Lock()
        self._jobs = 0
        self._draining = False

    @property
    def num_jobs(self) -> int:
        """Running and waiting jobs."""
        return self._jobs

    async def run(self, job: Callable[[], ResultT], size: int = 0) -> ResultT:
        """The result of a job. Cancelling removes a waiting job from the queue; a running job runs to its end.

        ``size`` is the size of the input, as in ``LARGE_INPUT``. Raises ``Overloaded`` if the queue is full.
        """
        if self._draining:
            raise Unavailable("the tokenizer is shutting down", retry_after=1.0)
        self._enter()
        future = self._submit(job, size)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    async def drain(self) -> None:
        """Refuse new jobs and return when all others are done."""
        self._draining = True
        for executor in (self._small, self._large):
            await asyncio.to_thread(executor.shutdown, wait=True)

    def close(self) -> None:
        """Refuse new jobs and cancel the waiting ones."""
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
                raise Overloaded("too many requests are waiting for the tokenizer", retry_after=1.0)
            self._jobs += 1

    def _leave(self, _future: Future[Any]) -> None:
        with self._lock:
            self._jobs -= 1


def _trimming(job: Callable[[], ResultT]) -> ResultT:
    try:
        return job()
    finally:
        trim_memory()
