"""The step loop's thread, and the only way between it and the event loop.

Commands go to the thread through a queue; outputs come back with one call for each step, however many requests it
moved. The thread sleeps when there is nothing to do. Knows what a request is, not what a step does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

import structlog

from engine_svc.engine import Engine
from engine_svc.heartbeat import Heartbeat
from engine_svc.output import Loads, RequestOutput
from engine_svc.request import Request
from engine_svc.scheduling.capacity import Places
from svclib.errors import Unavailable

_JOIN_SECONDS: Final = 5.0

Listener = Callable[[RequestOutput], None]
"""Called on the event loop with every output of one request, the last one included."""

log = structlog.get_logger(__name__)


class StepLoop:
    """Runs an engine. Every method but the thread's own belongs to the event loop's thread."""

    def __init__(self, engine: Engine, places: Places, heartbeat: Heartbeat, on_death: Callable[[], None]) -> None:
        self._engine = engine
        self._places = places
        self._heartbeat = heartbeat
        self._on_death = on_death
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._listeners: dict[int, tuple[Request, Listener]] = {}
        self._next_group_id = 0
        self._halted = False
        self._dead = False
        self._thread = threading.Thread(target=self._run, name="step-loop", daemon=True)
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Start the thread; outputs go to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End the thread, after the step it is in. A thread that hangs is left behind."""
        self._commands.put(self._halt)
        await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)

    @property
    def loads(self) -> Loads:
        """The load now; from any thread. Requests on their way to the thread count as waiting."""
        loads = self._engine.loads
        num_waiting = max(0, self._places.num_taken - loads.num_running)
        return Loads(loads.num_running, num_waiting, loads.num_free_blocks)

    def submit(self, request: Request, listener: Listener) -> int:
        """Hand a request over; returns the group id that names it.

        Raises ``Overloaded`` when the queue is full, ``InvalidRequest`` when it can never hold so many choices, and
        ``Unavailable`` when the engine is lost.
        """
        if self._dead:
            raise _gone()
        self._places.take(request.sampling_params.n)
        group_id = self._next_group_id
        self._next_group_id += request.sampling_params.n
        self._listeners[group_id] = (request, listener)
        self._commands.put(partial(self._engine.add, group_id, request))
        return group_id

    def abort(self, group_id: int) -> None:
        """Forget a request: its listener hears no more of it, and the next step is made without it."""
        if self._forget(group_id) is not None:
            self._commands.put(partial(self._engine.abort, group_id))

    def stop_choice(self, group_id: int, index: int) -> None:
        """End one choice of a request. The request ends as usual with its last choice."""
        self._commands.put(partial(self._engine.stop_choice, group_id, index))

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            group_id = output.group_id
            known = self._forget(group_id) if output.is_last else self._listeners.get(group_id)
            if known is not None:
                _, listener = known
                listener(output)

    def _forget(self, group_id: int) -> tuple[Request, Listener] | None:
        known = self._listeners.pop(group_id, None)
        if known is not None:
            self._places.give_back(known[0].sampling_params.n)
        return known

    def _die(self) -> None:
        self._dead = True
        self._deliver([RequestOutput(group_id, [], error=_gone()) for group_id in self._listeners])
        self._on_death()

    def _run(self) -> None:
        """The thread."""
        try:
            seconds: float | None = None
            while self._obey(seconds):
                seconds = self._advance()
        except BaseException:  # a panic of a library in Rust is not an Exception
            log.exception("the engine is lost")
            with suppress(RuntimeError):  # the event loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._die)

    def _obey(self, seconds: float | None) -> bool:
        """Do what was commanded, after waiting so long for the first command. False when it is time to stop."""
        if seconds != 0.0:
            with suppress(Empty):
                self._commands.get(timeout=seconds)()
        while not self._commands.empty():
            self._commands.get()()
        return not self._halted

    def _advance(self) -> float | None:
        """Make a step; returns in how many seconds another one is worth a try, None for not before a command."""
        self._heartbeat.owe()
        moved = self._engine.step()
        if outputs := self._engine.take_outputs():
            self._loop.call_soon_threadsafe(self._deliver, outputs)
        if moved:
            self._heartbeat.pay()
            return 0.0
        seconds = self._engine.seconds_until_due()
        if seconds is not None or not self._engine.loads.num_waiting:
            self._heartbeat.rest()
        return seconds

    def _halt(self) -> None:
        self._halted = True


def _gone() -> Unavailable:
    return Unavailable("the engine is lost and starts again", retry_after=1.0)
