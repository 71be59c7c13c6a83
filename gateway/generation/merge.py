"""Several async iterators read at once, as one async iterator of batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

MAX_WAITING: Final = 64
"""Items that may wait to be taken; beyond it the sources are not read on."""

ItemT = TypeVar("ItemT")


class Merge(Generic[ItemT]):
    """Reads its sources inside of an ``async with``. A batch is everything that waits when the reader comes.

    A source that gives None has nothing to deliver, and is read on when the reader keeps up.
    After an error of one source, what waited is still delivered, then the error is raised. Leaving the context stops
    all sources.
    """

    def __init__(self, *sources: AsyncIterator[ItemT | None]) -> None:
        self._sources = sources
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: list[ItemT] = []
        self._error: Exception | None = None
        self._num_running = len(sources)
        self._something = asyncio.Event()
        self._room = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._read(source)) for source in self._sources]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[ItemT]:
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if not self._num_running:
                raise StopAsyncIteration
            self._something.clear()
            await self._something.wait()
        batch, self._waiting = self._waiting, []
        self._room.set()
        return batch

    async def _read(self, source: AsyncIterator[ItemT | None]) -> None:
        try:
            async for item in source:
                if item is not None:
                    self._waiting.append(item)
                    self._something.set()
                while len(self._waiting) >= MAX_WAITING:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:
            self._error = self._error or error
        finally:
            self._num_running -= 1
            self._something.set()
