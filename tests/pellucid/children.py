"""Small programs in place of services, as real processes, and an observer that records events."""

from __future__ import annotations

import asyncio
import os
import textwrap
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pellucid.supervisor import Service

SLEEP_UNTIL_TERM = """
    import signal, sys, time
    def end(*_):
        print("ended in order", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("up", flush=True)
    while True:
        time.sleep(60)
"""


class Programs:
    """Modules in a temporary folder, runnable by name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), str(Path(__file__).parents[2]))))

    def write(self, name: str, source: str = SLEEP_UNTIL_TERM) -> str:
        (self.folder / f"{name}.py").write_text(textwrap.dedent(source))
        return name


@dataclass
class Recorder:
    """An observer. ``saw`` waits for an event, past or future."""

    events: list[tuple[str, ...]] = field(default_factory=list)
    pids: dict[str, list[int]] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def _record(self, *event: str) -> None:
        self.events.append(event)
        self.changed.set()

    async def saw(self, *event: str, times: int = 1) -> None:
        while self.events.count(event) < times:
            self.changed.clear()
            await self.changed.wait()

    def line(self, service: str, text: str) -> None:
        self._record("line", service, text)

    def starting(self, service: str, pid: int) -> None:
        self.pids.setdefault(service, []).append(pid)
        self._record("starting", service)

    def ready(self, service: str) -> None:
        self._record("ready", service)

    def all_ready(self) -> None:
        self._record("all ready")

    def hangs(self, service: str) -> None:
        self._record("hangs", service)

    def ended(self, service: str, how: str, restart_in: float | None) -> None:
        self._record("ended", service, how, "for good" if restart_in is None else f"again in {restart_in:g}")

    def draining(self, services: Sequence[str]) -> None:
        self._record("draining", *services)

    def gave_up(self, service: str, why: str, last_lines: Sequence[str]) -> None:
        self._record("gave up", service, why, *last_lines)


async def immediately() -> None:
    """A service that is ready immediately."""


async def never() -> None:
    """A service that never becomes ready."""
    await asyncio.Event().wait()


def service(
    name: str,
    *,
    takes_clients: bool = False,
    stop_seconds: float = 30.0,
    ready: bool = True,
    hang: Callable[[], Awaitable[None]] | None = None,
) -> Service:
    return Service(
        name=name,
        module=name,
        arguments=(),
        ready=immediately if ready else never,
        stop_seconds=stop_seconds,
        hang=hang,
        takes_clients=takes_clients,
    )


def wait_until_gone(pids: Sequence[int]) -> None:
    """Fails if one of the processes still exists after 60 seconds."""
    deadline = time.monotonic() + 60
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
