"""Threads with deep stacks: llguidance is recursive over a schema and its references, and a stack overflow ends the
process."""

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
"""Enough for about 20,000 levels, far more than the limits allow. Memory is taken only as it is used."""

T = TypeVar("T")
_Task: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class DeepThreads:
    """An executor of daemon threads: the process may end while they work.

    All threads start at once, because the stack size is a setting for every thread that starts.
    """

    def __init__(self, count: int, name: str, *, niceness: int = 0) -> None:
        """``niceness`` is added to the threads' own where each thread has one (on Linux)."""
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
        """The result of ``function``, or what it raises; it does not run if the future is cancelled before."""
        future: Future[T] = Future()
        if self._close.alive:
            self._tasks.put((future, function))
        else:
            future.cancel()
        return future

    def close(self) -> None:
        """Cancel what waits, and let the threads end after what they run."""
        self._close()


def _work(tasks: SimpleQueue[_Task | None], niceness: int) -> None:
    """The main function of a thread."""
    if niceness and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + niceness))
    while task := tasks.get():
        _fulfil(*task)
        del task  # Otherwise it would be kept alive until the next one comes.


def _fulfil(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # It belongs to the future; the thread goes on.
        future.set_exception(error)
    else:
        future.set_result(result)


def _end(tasks: SimpleQueue[_Task | None], count: int) -> None:
    with suppress(Empty):
        while task := tasks.get_nowait():
            task[0].cancel()
    for _ in range(count):
        tasks.put(None)
