"""The loops of the good client and of the hostile ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field

from bench.hostile.kind import Attack, Good, Target


@dataclass(frozen=True, slots=True)
class Answers:
    """Latencies in seconds by status, or by what came instead."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    async def wait_for(self, answer: Awaitable[str]) -> None:
        started, found = time.perf_counter(), "open at the end"
        try:
            found = await answer
        except OSError as error:
            found = type(error).__name__
        finally:
            self.seconds.setdefault(found, []).append(time.perf_counter() - started)


async def be_good(target: Target, good: Good, seconds: float) -> dict[str, Answers]:
    """Small chats, one at a time, at least two of each."""
    found = {name: Answers() for name in good}
    until, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until or rounds < 2:
        for name, fields in good.items():
            chat = target.answer(target.chat(max_tokens=4, **fields()))
            await found[name].wait_for(asyncio.wait_for(chat, timeout=60))
            await asyncio.sleep(0.02)
        rounds += 1
    return found


def be_hostile(attack: Attack, clients: int, pause: float, target: Target, seconds: float) -> Answers:
    """Runs in a process of its own, so that it does not slow the good client's event loop."""
    told = Answers()

    async def again_and_again() -> None:
        while True:
            await told.wait_for(attack(target))
            await asyncio.sleep(pause)

    async def all_at_once() -> None:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(again_and_again())

    with suppress(TimeoutError):
        asyncio.run(all_at_once())
    return told
