"""Interrupting a block of code from outside, with a given error.

Three events abort a request: its client disconnects, its deadline passes, the gateway shuts down. Each calls the same
interrupt, and the block ends as if the error had been raised at its current ``await``.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Interrupt:
    """An async context manager, entered once. Calling it ends the block; only the first call counts.

    As in ``asyncio.timeout``, the task is cancelled, and the cancellation becomes the error at the end of the block.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._num_cancels = 0
        self._error: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._num_cancels = task, task.cancelling()
        return self

    def __call__(self, error: Exception) -> None:
        """End the block with ``error``. Has no effect outside the block."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    def after(self, seconds: float, error: Exception) -> None:
        """End the block after a time, unless it has ended before."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        if self._error is not None and task is not None:
            is_ours = task.uncancel() <= self._num_cancels
            if is_ours and kind is asyncio.CancelledError:
                raise self._error from None
