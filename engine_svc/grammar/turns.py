"""Which constraints are compiled now: a few at a time, first come, first served, and none beyond its share while others
wait.

The engine does not know which client sent a constraint, so it is fair between constraints, not between clients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import itemgetter


@dataclass(eq=False, slots=True)
class _Turn:
    seconds: Callable[[], float]
    stop: Callable[[], None]
    is_stopped: bool = False


class Turns:
    """``count`` turns at a time; one may be stopped after ``share_seconds`` when another is wanted.

    Belongs to one event loop.
    """

    def __init__(self, count: int, share_seconds: float) -> None:
        self._count = count
        self._share_seconds = share_seconds
        self._num_taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._running: list[_Turn] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, seconds: Callable[[], float], stop: Callable[[], None]) -> AsyncIterator[None]:
        """Wait for a turn, which lasts as long as the block.

        ``seconds`` is how long the work has run, and ``stop`` asks for its end; it is called at most once.
        """
        await self._take()
        turn = _Turn(seconds, stop)
        self._running.append(turn)
        self.check()
        try:
            yield
        finally:
            self._running.remove(turn)
            self._give_back()

    def check(self) -> None:
        """Stop the turns furthest beyond their share, as many as are wanted; check again when the next one is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        num_wanted = len(self._waiting) - sum(turn.is_stopped for turn in self._running)
        found = [(turn.seconds(), turn) for turn in self._running if not turn.is_stopped]
        found.sort(key=itemgetter(0), reverse=True)
        for seconds, turn in found[: max(0, num_wanted)]:
            if (left := self._share_seconds - seconds) > 0:
                self._timer = asyncio.get_running_loop().call_later(left, self.check)
                return
            turn.is_stopped = True
            turn.stop()

    async def _take(self) -> None:
        if self._num_taken < self._count:
            self._num_taken += 1
            return
        given = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        self.check()
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():
                self._give_back()
            elif given in self._waiting:
                self._waiting.remove(given)
            raise

    def _give_back(self) -> None:
        """To the first that still waits, if there is one."""
        while self._waiting:
            given = self._waiting.popleft()
            if not given.done():
                given.set_result(None)
                return
        self._num_taken -= 1
