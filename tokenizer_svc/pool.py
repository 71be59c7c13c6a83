"""A bounded number of threads, and a bounded number of jobs that wait for them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from svclib.errors import Overloaded, Unavailable

ResultT = TypeVar("ResultT")


class Pool:
    """Runs jobs that would hold up the event loop."""

    def __init__(self, workers: int, max_waiting: int) -> None:
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="tokenizer")
        self._max_jobs = workers + max_waiting
        self._lock = threading.Lock()
        self._jobs = 0
        self._draining = False

    @property
    def num_jobs(self) -> int:
        """Jobs that run or wait."""
        return self._jobs

    async def run(self, job: Callable[[], ResultT]) -> ResultT:
        """The result of a job. A cancelled caller gives up its place in the queue; a job that runs runs to its end.

        Raises ``Overloaded`` when too many wait already.
        """
        if self._draining:
            raise Unavailable("the tokenizer is shutting down", retry_after=1.0)
        self._enter()
        future = self._executor.submit(contextvars.copy_context().run, job)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    async def drain(self) -> None:
        """Take no new jobs and return when the others are done."""
        self._draining = True
        await asyncio.to_thread(self._executor.shutdown, wait=True)

    def close(self) -> None:
        """Take no new jobs and forget those that wait."""
        self._draining = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _enter(self) -> None:
        with self._lock:
            if self._jobs >= self._max_jobs:
                raise Overloaded("the tokenizer has too many requests waiting", retry_after=1.0)
            self._jobs += 1

    def _leave(self, _future: Future[Any]) -> None:
        with self._lock:
            self._jobs -= 1
