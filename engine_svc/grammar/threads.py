"""Threads with deep stacks: llguidance goes down a schema and its references by recursion, and a stack that overflows
ends the process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar
from weakref import finalize

STACK_BYTES: Final = 64 * 1024 * 1024
"""Room for about 20,000 levels, far more than the limits let through. Memory is taken only as it is used."""

T = TypeVar("T")
_Task: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class DeepThreads:
    """An executor that nobody waits for: a process may end while its threads, daemons, are at work.

    They exist from the start, because the size of stacks is said for all threads that start.
    """

    def __init__(self, count: int, name: str, *, niceness: int = 0) -> None:
        """``niceness`` is by how much others come first, where threads can have one of their own (on Linux)."""
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        usual = threading.stack_size(STACK_BYTES)
        try:
            for number in range(count):
                arguments = (self._tasks, niceness)
                threading.Thread(target=_work, args=arguments, name=f"{name}-{number}", daemon=True).start()
        finally:
            threading.stack_size(usual)
        self._close = finalize(self, _end, self._tasks, count)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Its result or whatever it raises, unless the future is cancelled before its turn."""
        future: Future[T] = Future()
        if self._close.alive:
            self._tasks.put((future, function))
        else:
            future.cancel()
        return future

    def close(self) -> None:
        """Let the threads end with what they are at, and cancel what waits for them."""
        self._close()


def _work(tasks: SimpleQueue[_Task | None], niceness: int) -> None:
    """A thread."""
    if niceness and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + niceness))
    while task := tasks.get():
        _fulfil(*task)
        del task  # or it would be kept until the next one comes


def _fulfil(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # whoever asked is told, and the thread goes on
        future.set_exception(error)
    else:
        future.set_result(result)


def _end(tasks: SimpleQueue[_Task | None], count: int) -> None:
    with suppress(Empty):
        while task := tasks.get_nowait():
            task[0].cancel()
    for _ in range(count):
        tasks.put(None)
