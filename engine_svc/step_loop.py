"""The thread that steps an engine, and the only way between it and the event loop.

Commands go to the thread through a queue; outputs come back in one call per step, for all its requests together. The
thread sleeps when no sequence is due. It knows neither the content of a request nor what a step computes, so it runs
engines that generate and engines that embed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

import structlog

from engine_svc.heartbeat import Heartbeat
from engine_svc.output import Loads
from engine_svc.scheduling.capacity import Slots
from engine_svc.step_engine import EngineOutput, EngineRequest, StepEngine
from svclib.errors import Unavailable

_JOIN_SECONDS: Final = 5.0

RequestT = TypeVar("RequestT", bound=EngineRequest)
OutputT = TypeVar("OutputT", bound=EngineOutput)

log = structlog.get_logger(__name__)


class StepLoop(Generic[RequestT, OutputT]):
    """Runs an engine. Public methods are for the event loop's thread.

    A listener is called on the event loop with every output of its request, the last one included.
    """

    def __init__(
        self,
        engine: StepEngine[RequestT, OutputT],
        slots: Slots,
        heartbeat: Heartbeat,
        on_failure: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._slots = slots
        self._heartbeat = heartbeat
        self._on_failure = on_failure
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._listeners: dict[int, tuple[RequestT, Callable[[OutputT], None]]] = {}
        self._num_seqs = 0
        self._next_group_id = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._halted = False
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="step-loop", daemon=True)
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Start the thread; outputs go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def drain(self) -> None:
        """Refuse new requests, and return when the running ones have finished."""
        self._draining = True
        await self._idle.wait()

    async def stop(self) -> None:
        """End the thread after its current step. A thread that hangs is abandoned."""
        self._commands.put(self._halt)
        await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)

    @property
    def loads(self) -> Loads:
        """The current load; from any thread. Requests in the command queue count as waiting."""
        loads = self._engine.loads
        return Loads(loads.num_running, max(0, self._num_seqs - loads.num_running), loads.num_free_blocks)

    def submit(self, request: RequestT, listener: Callable[[OutputT], None]) -> int:
        """Submit a request; returns its group id.

        Raises ``Overloaded`` when the queue is full, ``InvalidRequest`` if the request exceeds the queue, and
        ``Unavailable`` when the engine has failed or shuts down.
        """
        if self._failed:
            raise _engine_failed()
        if self._draining:
            raise Unavailable("the server is shutting down", retry_after=1.0)
        self._slots.take(request.num_slots)
        group_id = self._next_group_id
        self._next_group_id += request.num_seqs
        self._num_seqs += request.num_seqs
        self._listeners[group_id] = (request, listener)
        self._idle.clear()
        self._commands.put(partial(self._engine.add, group_id, request))
        return group_id

    def abort(self, group_id: int) -> None:
        """Release a request: its listener is not called again, and the next step is made without it."""
        if self._release(group_id) is not None:
            self.command(partial(self._engine.abort, group_id))

    def command(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the thread between two steps, after all earlier commands."""
        self._commands.put(action)

    def _deliver(self, outputs: list[OutputT]) -> None:
        for output in outputs:
            group_id = output.group_id
            known = self._release(group_id) if output.is_last else self._listeners.get(group_id)
            if known is not None:
                _, listener = known
                listener(output)

    def _release(self, group_id: int) -> tuple[RequestT, Callable[[OutputT], None]] | None:
        known = self._listeners.pop(group_id, None)
        if known is not None:
            request, _ = known
            self._slots.release(request.num_slots)
            self._num_seqs -= request.num_seqs
            if not self._listeners:
                self._idle.set()
        return known

    def _fail(self) -> None:
        self._failed = True
        self._deliver([self._engine.failed(group_id, _engine_failed()) for group_id in self._listeners])
        self._on_failure()

    def _run(self) -> None:
        """The thread."""
        try:
            seconds: float | None = None
            while self._run_commands(seconds):
                seconds = self._advance()
        except BaseException:  # a panic of a library in Rust is not an Exception
            log.exception("engine failed")
            with suppress(RuntimeError):  # the event loop is closed: no client is left
                self._loop.call_soon_threadsafe(self._fail)

    def _run_commands(self, seconds: float | None) -> bool:
        """Run all queued commands, after waiting at most ``seconds`` for the first. False if one was to stop."""
        if seconds != 0.0:
            with suppress(Empty):
                self._commands.get(timeout=seconds)()
        while not self._commands.empty():
            self._commands.get()()
        return not self._halted

    def _advance(self) -> float | None:
        """Make a step; returns the time until the next one, None: not before a command."""
        self._heartbeat.expect_step()
        moved = self._engine.step()
        if outputs := self._engine.take_outputs():
            self._loop.call_soon_threadsafe(self._deliver, outputs)
        if moved:
            self._heartbeat.step_done()
            return 0.0
        seconds = self._engine.seconds_until_due()
        if seconds is not None or not self._engine.loads.num_waiting:
            self._heartbeat.idle()
        return seconds

    def _halt(self) -> None:
        self._halted = True


def _engine_failed() -> Unavailable:
    return Unavailable("engine failed; restarting", retry_after=1.0)
