"""Work that several callers wait for and that is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclass(slots=True)
class _Work(Generic[Result]):
    task: asyncio.Task[Result]
    num_callers: int = 0


class SharedWork(Generic[Key, Result]):
    """One task for each key. It is cancelled when every caller has left. Belongs to one event loop."""

    def __init__(self) -> None:
        self._works: dict[Key, _Work[Result]] = {}

    async def result(self, key: Key, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of ``start``, or of the same key's task if there is one now. Raises what it raises."""
        work = self._works.get(key)
        if work is None:
            work = self._works[key] = _Work(asyncio.create_task(start()))
        work.num_callers += 1
        try:
            # Not `shield`, which logs the error of a task whose callers have all left.
            await asyncio.wait([work.task])
            return work.task.result()
        finally:
            work.num_callers -= 1
            if not work.num_callers:
                work.task.cancel()
            if self._works.get(key) is work and (work.task.done() or not work.num_callers):
                del self._works[key]
