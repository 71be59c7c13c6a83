"""What has arrived from the two services and has not been taken yet, and the wait for it.

One task reads an attempt. The callbacks of both services and of the ping timer note what there is to take and wake that
task. This runs for every token, so waiting costs one future, and there is no further task.
"""

from __future__ import annotations

import asyncio


class Arrivals:
    """Notes what can be taken. Only one task may wait."""

    __slots__ = ("_has_news", "_ping_timer", "_waiter", "formatted", "has_generated", "is_ping_due")

    def __init__(self) -> None:
        self.has_generated = False
        """The engine has output, or has ended."""
        self.formatted: dict[int, None] = {}
        """Choices for which the detokenizer has output, or has ended; in the order of arrival."""
        self.is_ping_due = False
        self._has_news = True
        self._waiter: asyncio.Future[None] | None = None
        self._ping_timer: asyncio.TimerHandle | None = None

    def on_generated(self) -> None:
        self.has_generated = True
        self._wake()

    def on_formatted(self, index: int) -> None:
        self.formatted[index] = None
        self._wake()

    def _wake(self) -> None:
        self._has_news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Return once there is something to take. The first call returns at once."""
        if not (self._has_news or self.has_generated or self.formatted):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._has_news = False

    @property
    def has_output(self) -> bool:
        """Whether output, or the end of a stream, is left to take."""
        return self.has_generated or bool(self.formatted)

    def ping_every(self, seconds: float) -> None:
        """Note a ping every so many seconds, until ``stop``."""
        self._ping_timer = asyncio.get_running_loop().call_later(seconds, self._ping, seconds)

    def stop(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()

    def _ping(self, seconds: float) -> None:
        self.is_ping_due = True
        self._wake()
        self.ping_every(seconds)
