"""Runs the services of a stack, restarts those that fail, and stops them in order.

The supervisor handles processes only. ``Service`` defines how to start and probe one; ``Observer`` shows what happens.
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
"""Time between SIGTERM and SIGKILL for a hung process."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the stack."""

    name: str
    module: str
    arguments: tuple[str, ...]
    ready: Callable[[], Awaitable[None]]
    """Waits until the process is ready."""
    stop_seconds: float
    """Time between SIGTERM and SIGKILL."""
    hang: Callable[[], Awaitable[None]] | None = None
    """Waits until the process, once ready, hangs; None: no liveness probes."""
    takes_clients: bool = False
    """Stops before the others, because it needs them to finish its running requests."""


class Observer(Protocol):
    """Callbacks for events. None may block."""

    def line(self, service: str, text: str) -> None:
        """A service printed a line."""

    def starting(self, service: str, pid: int) -> None: ...

    def ready(self, service: str) -> None: ...

    def all_ready(self) -> None:
        """Every service has been ready once. Called once."""

    def hangs(self, service: str) -> None:
        """A process does not respond and is being stopped."""

    def ended(self, service: str, how: str, restart_in: float | None) -> None:
        """A process ended unasked; it restarts in ``restart_in`` seconds, or not at all (None)."""

    def draining(self, services: Sequence[str]) -> None: ...

    def gave_up(self, service: str, why: str, last_lines: Sequence[str]) -> None: ...


class Supervisor:
    """Runs services until ``stop`` is called or one of them cannot start."""

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
        """Drain and stop all services. The second call kills them."""
        if self._stopping.is_set():
            self._exit_code = EXIT_INTERRUPTED
            for process in self._running.values():
                process.kill()
        self._stopping.set()

    async def run(self) -> int:
        """Run until every process has ended. Returns the supervisor's exit code."""
        async with asyncio.TaskGroup() as keepers:
            for service in self._services:
                keepers.create_task(self._keep(service))
            await self._stopping.wait()
            await self._drain()
        return self._exit_code

    async def _keep(self, service: Service) -> None:
        """Run a service, and restart it after each end."""
        backoff = Backoff(self._policy)
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            last_lines: deque[str] = deque(maxlen=_LAST_LINES)
            code = await self._run_once(service, last_lines)
            if self._stopping.is_set():
                return
            delay = backoff.delay_after(clock() - began)
            if why := self._no_restart_reason(service, code, backoff.failures):
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
        """Wait for readiness, then stop the process if it hangs. Not while it loads or drains."""
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

    def _no_restart_reason(self, service: Service, code: int, failures: int) -> str:
        """Why the service is not restarted; empty if it is."""
        if code == EXIT_BAD_SETTINGS:
            return "invalid setting"
        if service.name not in self._been_ready and failures >= _MAX_FAILED_STARTS:
            return f"failed {failures} times before becoming ready"
        return ""

    def _give_up(self, service: Service, why: str, last_lines: Sequence[str], code: int) -> None:
        self._observer.gave_up(service.name, why, last_lines)
        self._exit_code = EXIT_BAD_SETTINGS if code == EXIT_BAD_SETTINGS else EXIT_FAILED
        self._stopping.set()

    async def _drain(self) -> None:
        async with self._spawning:
            pass  # No process starts after this, so the loop below sees all of them.
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
