"""Hops 5 to 11 on one engine and one detokenizer: tokens of the engine go to the detokenizer, events come back.

An attempt has no task of its own. Both services wake the one task that reads it, which then passes on the output, no
faster than the client reads. Output that comes earlier waits on the session with its service, compact and bounded.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from gateway.generation.arrivals import Arrivals
from gateway.generation.events import Event, Finish, GenerateEvent, Output, Signal
from gateway.generation.plan import Plan
from gateway.generation.record import RequestRecord
from gateway.generation.services import Formatting, Generation, ServedModel
from svclib.errors import InternalError, InvalidRequest, ServiceError


@dataclass(slots=True)
class Progress:
    """How far one choice is: what another attempt needs to continue it."""

    token_ids: array[int] = field(default_factory=lambda: array("I"))
    """Output of the engine."""
    chars_sent: int = 0
    """Characters of content, reasoning and arguments that were passed on."""
    is_generated: bool = False
    """The engine has ended it."""
    is_finished: bool = False
    """The detokenizer has ended it."""


class Attempt:
    """One attempt at a request. A context manager: leaving it early cancels the request on both services.

    ``observe_step`` is called with the seconds between two outputs of the engine, None for the first output.
    ``avoid`` holds addresses of replicas that are chosen only if there is no other.
    """

    def __init__(
        self,
        served: ServedModel,
        plan: Plan,
        record: RequestRecord,
        observe_step: Callable[[float | None], None],
        *,
        avoid: Set[str] = frozenset(),
    ) -> None:
        self.choices = [Progress() for _ in range(plan.generate.n)]
        self._served = served
        self._plan = plan
        self._record = record
        self._observe_step = observe_step
        self._avoid = avoid
        self._context = ExitStack()
        self._generation: Generation
        self._formattings: list[Formatting] = []
        self._arrivals = Arrivals()
        self._num_running = plan.generate.n
        self._error: ServiceError | None = None

    def __enter__(self) -> Self:
        with ExitStack() as context:
            context.callback(self._arrivals.stop)
            self._start(context)
            self._context = context.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    async def batches(
        self, abort: Callable[[ServiceError], None], ping_seconds: float | None = None
    ) -> AsyncGenerator[list[Event], None]:
        """All events since the last batch, until every choice has ended. Raises ``ServiceError``.

        ``abort`` is called when batches are read so slowly that a service has ended the request. Output that arrived
        before an error is yielded before the error is raised.
        """
        self._watch(abort)
        if ping_seconds is not None:
            self._arrivals.ping_every(ping_seconds)
        while self._num_running:
            await self._arrivals.wait()
            if batch := self._take():
                yield batch
            if self._arrivals.has_output:
                await asyncio.sleep(0)  # Other tasks run between two portions.
            elif self._error is not None and self._num_running:
                raise self._error

    def _start(self, context: ExitStack) -> None:
        count = len(self.choices)
        engine = context.enter_context(self._served.engines.choose(choices=count, avoid=self._avoid))
        self._record.replicas["engine"] = engine.address
        self._generation = engine.client.generate(self._plan.generate, self._plan.opening)
        context.callback(self._generation.leave)
        self._generation.start()
        detokenizer = context.enter_context(self._served.detokenizers.choose(choices=count, avoid=self._avoid))
        self._record.replicas["detokenizer"] = detokenizer.address
        self._formattings = [detokenizer.client.format(self._plan.format, self._plan.opening) for _ in range(count)]
        for formatting in self._formattings:
            context.callback(formatting.leave)
            formatting.start()

    def _watch(self, abort: Callable[[ServiceError], None]) -> None:
        self._generation.watch(self._arrivals.on_generated, abort)
        for index, formatting in enumerate(self._formattings):
            formatting.watch(partial(self._arrivals.on_formatted, index), abort)

    def _take(self) -> list[Event]:
        """Pass on what has arrived. The first error is kept until the rest is taken."""
        batch: list[Event] = []
        arrivals = self._arrivals
        try:
            if arrivals.has_generated:
                self._take_generated(batch)
        except ServiceError as error:
            self._error = self._error or error
        formatted, arrivals.formatted = arrivals.formatted, {}
        for index in formatted:
            try:
                self._take_formatted(index, batch)
            except ServiceError as error:
                self._error = self._error or error
        if arrivals.is_ping_due:
            arrivals.is_ping_due = False
            batch.append(Signal.PING)
        return batch

    def _take_generated(self, batch: list[Event]) -> None:
        self._arrivals.has_generated = False
        try:
            event = self._generation.take()
        except InvalidRequest as error:
            raise self._plan.explain(error) from None
        if event is not None:
            self._arrivals.has_generated = self._generation.has_more
            self._send(event, batch)
        has_ended = self._generation.is_over
        if has_ended and not all(choice.is_generated or choice.is_finished for choice in self.choices):
            raise InternalError

    def _send(self, event: GenerateEvent, batch: list[Event]) -> None:
        """Send the engine's output to the detokenizer."""
        if event.head is not None:
            self._record.note_head(event.head)
            batch.append(Signal.STARTED)
        for chunk in event.chunks:
            choice = self.choices[chunk.index]
            choice.token_ids.extend(chunk.token_ids)
            choice.is_generated = choice.is_generated or bool(chunk.finish_reason)
            self._formattings[chunk.index].send(chunk)
        if event.chunks:
            self._observe_step(self._record.note_chunks(event.chunks, time.time()))
        if event.stats is not None:
            self._record.note_stats(event.stats)

    def _take_formatted(self, index: int, batch: list[Event]) -> None:
        formatting, choice = self._formattings[index], self.choices[index]
        formatted = formatting.take()
        if formatted is not None and not choice.is_finished:
            if formatting.has_more:
                self._arrivals.formatted[index] = None
            choice.chars_sent += sum(delta.num_chars for delta in formatted.deltas)
            batch.append(Output(index, formatted))
            if formatted.finish is not None:
                self._finish(index, formatted.finish)
        if formatting.is_over and not choice.is_finished:
            raise InternalError

    def _finish(self, index: int, finish: Finish) -> None:
        """Tell the engine as well, in case it has not ended the choice itself."""
        self.choices[index].is_finished = True
        self._num_running -= 1
        self._record.note_finish(index, finish)
        self._generation.stop_choice(index)
