"""Keeps the services of a stack running, and ends them in the right order.

The supervisor knows how to run, watch, restart and stop processes; what they are and how to see that one is ready is
said by ``Service``, and what a person sees of it is the business of the ``Observer``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from pellucid.backoff import Backoff, BackoffPolicy
from pellucid.process import ServiceProcess, how_it_ended

EXIT_STOPPED: Final = 0
EXIT_FAILED: Final = 1
EXIT_BAD_SETTINGS: Final = 2
EXIT_INTERRUPTED: Final = 130

_MAX_FAILED_STARTS: Final = 3
_LAST_LINES: Final = 15
_HUNG_SECONDS: Final = 3.0
"""What a process that does not answer gets, from being told to stop until it is killed."""


@dataclass(frozen=True, slots=True)
class Service:
    """One of the processes."""

    name: str
    module: str
    arguments: tuple[str, ...]
    ready: Callable[[], Awaitable[None]]
    """Returns when the running process can do its work."""
    stop_seconds: float
    """From being told to stop until it is killed."""
    hang: Callable[[], Awaitable[None]] | None = None
    """Returns when the process, which was ready, does not answer any more; None: nobody asks."""
    takes_clients: bool = False
    """Ends before the others, because it needs them to finish what its clients wait for."""


class Observer(Protocol):
    """Is told what happens. No method may block."""

    def line(self, service: str, text: str) -> None:
        """A service printed something."""

    def starting(self, service: str, pid: int) -> None: ...

    def ready(self, service: str) -> None: ...

    def all_ready(self) -> None:
        """Every service has been ready once. Called once."""

    def hangs(self, service: str) -> None:
        """A process does not answer and is being ended."""

    def ended(self, service: str, how: str, restart_in: float | None) -> None:
        """A process ended by itself; ``restart_in`` seconds it is started again, or never."""

    def draining(self, services: Sequence[str]) -> None: ...

    def gave_up(self, service: str, why: str, last_lines: Sequence[str]) -> None: ...


class Supervisor:
    """Runs services until it is told to stop, or until one of them can never start."""

    def __init__(self, services: Sequence[Service], observer: Observer, policy: BackoffPolicy | None = None) -> None:
        self._services = services
        self._observer = observer
        self._policy = policy or BackoffPolicy()
        self._running: dict[str, ServiceProcess] = {}
        self._been_ready: set[str] = set()
        self._spawning = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._exit_code = EXIT_STOPPED

    def stop(self) -> None:
        """Drain and end everything; called again: kill everything."""
        if self._stopping.is_set():
            self._exit_code = EXIT_INTERRUPTED
            for process in self._running.values():
                process.kill()
        self._stopping.set()

    async def run(self) -> int:
        """Returns the exit code of the whole when every process has ended."""
        async with asyncio.TaskGroup() as keepers:
            for service in self._services:
                keepers.create_task(self._keep(service))
            await self._stopping.wait()
            await self._drain()
        return self._exit_code

    async def _keep(self, service: Service) -> None:
        """Run a service again and again."""
        backoff = Backoff(self._policy)
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            last_lines: deque[str] = deque(maxlen=_LAST_LINES)
            code = await self._run_once(service, last_lines)
            if self._stopping.is_set():
                return
            delay = backoff.delay_after(clock() - began)
            if why := self._hopeless(service, code, backoff.failures):
                self._observer.ended(service.name, how_it_ended(code), None)
                self._give_up(service, why, last_lines, code)
                return
            self._observer.ended(service.name, how_it_ended(code), delay)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)

    async def _run_once(self, service: Service, last_lines: deque[str]) -> int:
        def on_line(text: str) -> None:
            last_lines.append(text)
            self._observer.line(service.name, text)

        async with self._spawning:
            if self._stopping.is_set():
                return EXIT_STOPPED
            process = await ServiceProcess.start(service.module, service.arguments, on_line)
            self._running[service.name] = process
        self._observer.starting(service.name, process.pid)
        watch = asyncio.create_task(self._watch(service, process))
        try:
            return await process.wait()
        finally:
            watch.cancel()
            del self._running[service.name]

    async def _watch(self, service: Service, process: ServiceProcess) -> None:
        """See a process get ready, and end it if it hangs later. One that loads or drains is left alone."""
        await service.ready()
        self._note_ready(service)
        if service.hang is not None:
            await service.hang()
            if not self._stopping.is_set():
                self._observer.hangs(service.name)
                await self._end(process, _HUNG_SECONDS)

    def _note_ready(self, service: Service) -> None:
        self._observer.ready(service.name)
        if service.name not in self._been_ready:
            self._been_ready.add(service.name)
            if len(self._been_ready) == len(self._services):
                self._observer.all_ready()

    def _hopeless(self, service: Service, code: int, failures: int) -> str:
        """Why starting it again is no use; empty: it is worth a try."""
        if code == EXIT_BAD_SETTINGS:
            return "a setting is wrong"
        if service.name not in self._been_ready and failures >= _MAX_FAILED_STARTS:
            return f"it failed {failures} times and was never ready"
        return ""

    def _give_up(self, service: Service, why: str, last_lines: Sequence[str], code: int) -> None:
        self._observer.gave_up(service.name, why, last_lines)
        self._exit_code = EXIT_BAD_SETTINGS if code == EXIT_BAD_SETTINGS else EXIT_FAILED
        self._stopping.set()

    async def _drain(self) -> None:
        async with self._spawning:
            pass  # From here on no process is started, so none can be missed below.
        for takes_clients in (True, False):
            group = [s for s in self._services if s.takes_clients is takes_clients and s.name in self._running]
            if group:
                self._observer.draining([service.name for service in group])
                await asyncio.gather(*(self._end(self._running[s.name], s.stop_seconds) for s in group))

    async def _end(self, process: ServiceProcess, stop_seconds: float) -> None:
        process.terminate()
        try:
            await asyncio.wait_for(process.ended(), stop_seconds)
        except TimeoutError:
            process.kill()
            await process.ended()
