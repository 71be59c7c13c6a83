"""Runs the good client and the hostile clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field

from bench.hostile.kind import Attack, Good, Target


@dataclass(frozen=True, slots=True)
class Responses:
    """Latencies in seconds by outcome: an HTTP status, or the name of an error."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    async def wait_for(self, response: Awaitable[str]) -> None:
        started, outcome = time.perf_counter(), "open at the end"
        try:
            outcome = await response
        except OSError as error:
            outcome = type(error).__name__
        finally:
            self.seconds.setdefault(outcome, []).append(time.perf_counter() - started)


async def run_good_client(target: Target, good: Good, seconds: float) -> dict[str, Responses]:
    """Small chats in sequence for ``seconds``, at least two of each."""
    found = {name: Responses() for name in good}
    until, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until or rounds < 2:
        for name, fields in good.items():
            chat = target.send(target.chat(max_tokens=4, **fields()))
            await found[name].wait_for(asyncio.wait_for(chat, timeout=60))
            await asyncio.sleep(0.02)
        rounds += 1
    return found


def run_hostile_clients(attack: Attack, clients: int, pause: float, target: Target, seconds: float) -> Responses:
    """Run in a separate process, so that the hostile clients do not slow down the good client."""
    responses = Responses()

    async def run_client() -> None:
        while True:
            await responses.wait_for(attack(target))
            await asyncio.sleep(pause)

    async def run_all() -> None:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(run_client())

    with suppress(TimeoutError):
        asyncio.run(run_all())
    return responses
