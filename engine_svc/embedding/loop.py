"""The thread of the passes, and the only way between it and the event loop. It sleeps when there is nothing to do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Final

import structlog

from engine_svc.embedding.engine import EmbeddingEngine
from engine_svc.embedding.interface import EmbedderInfo, EmbeddingRequest, Vector
from engine_svc.embedding.queue import Job
from engine_svc.embedding.validation import MAX_WAITING_TOKENS
from engine_svc.heartbeat import Heartbeat
from engine_svc.output import Loads
from svclib.errors import Overloaded, ServiceError, Unavailable

_JOIN_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


class EmbeddingLoop:
    """Runs an embedder. Every method but the thread's own belongs to the event loop's thread."""

    def __init__(self, engine: EmbeddingEngine, heartbeat: Heartbeat, on_death: Callable[[], None]) -> None:
        self._engine = engine
        self._heartbeat = heartbeat
        self._on_death = on_death
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._futures: set[asyncio.Future[list[Vector]]] = set()
        self._num_tokens = 0
        self._draining = False
        self._halted = False
        self._dead = False
        self._thread = threading.Thread(target=self._run, name="embedding-loop", daemon=True)
        self._loop: asyncio.AbstractEventLoop

    @property
    def info(self) -> EmbedderInfo:
        return self._engine.info

    @property
    def loads(self) -> Loads:
        """Requests in the pass that is being computed, and all others; from any thread."""
        num_running = self._engine.num_running
        return Loads(num_running, max(0, len(self._futures) - num_running), 0)

    def start(self) -> None:
        """Start the thread; results go to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End the thread, after the pass it is in. A thread that hangs is left behind."""
        self._commands.put(self._halt)
        await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)

    async def drain(self) -> None:
        """Refuse new requests, and return when the running ones have ended."""
        self._draining = True
        while self._futures:
            await asyncio.wait(self._futures)

    async def embed(self, request: EmbeddingRequest) -> list[Vector]:
        """One vector for each text, in order. Being cancelled takes what is left of the request out of the queue.

        Raises ``Overloaded`` when too many tokens wait and ``Unavailable`` when the engine is lost or shuts down.
        """
        self._check_open(request)
        future: asyncio.Future[list[Vector]] = self._loop.create_future()
        job = Job(request, lambda outcome: self._tell(future, outcome))
        self._futures.add(future)
        self._num_tokens += request.num_tokens
        self._commands.put(partial(self._engine.add, job))
        try:
            return await future
        finally:
            self._futures.discard(future)
            self._num_tokens -= request.num_tokens
            self._commands.put(partial(self._engine.drop, job))

    def _check_open(self, request: EmbeddingRequest) -> None:
        if self._dead:
            raise _gone()
        if self._draining:
            raise Unavailable("the server is shutting down", retry_after=1.0)
        if self._num_tokens + request.num_tokens > MAX_WAITING_TOKENS:
            raise Overloaded("the engine's queue is full", retry_after=1.0)

    def _tell(self, future: asyncio.Future[list[Vector]], outcome: list[Vector] | ServiceError) -> None:
        """From the thread."""
        self._loop.call_soon_threadsafe(lambda: _settle(future, outcome))

    def _die(self) -> None:
        self._dead = True
        for future in self._futures:
            _settle(future, _gone())
        self._on_death()

    def _run(self) -> None:
        """The thread."""
        try:
            moved = False
            while self._obey(wait=not moved):
                moved = self._advance()
        except BaseException:  # a panic of a library in Rust is not an Exception
            log.exception("the engine is lost")
            with suppress(RuntimeError):  # the event loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._die)

    def _obey(self, *, wait: bool) -> bool:
        """Do what was commanded. False when it is time to stop."""
        if wait:
            self._commands.get()()
        while not self._commands.empty():
            self._commands.get()()
        return not self._halted

    def _advance(self) -> bool:
        """Compute a pass; whether there was one to compute."""
        self._heartbeat.owe()
        if moved := self._engine.step():
            self._heartbeat.pay()
        else:
            self._heartbeat.rest()
        return moved

    def _halt(self) -> None:
        self._halted = True


def _settle(future: asyncio.Future[list[Vector]], outcome: list[Vector] | ServiceError) -> None:
    if future.done():
        return
    if isinstance(outcome, ServiceError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _gone() -> Unavailable:
    return Unavailable("the engine is lost and starts again", retry_after=1.0)
