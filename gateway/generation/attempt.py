"""Hops 5 to 11 on one engine and one detokenizer: tokens out of the one go into the other, and events come of it.

An attempt has no task of its own. Both services wake the one task that reads it, which then moves on whatever has come,
so that nothing is handed on faster than the client reads. What is early waits on the session with its service, where it
is compact and bounded.
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

from gateway.generation.events import Event, Finish, GenerateEvent, Output, Signal
from gateway.generation.record import RequestRecord
from gateway.generation.services import FormatInput, Formatting, GenerateInput, Generation, ServedModel
from svclib.errors import InternalError, InvalidRequest, ServiceError
from svclib.session import Opening


@dataclass(frozen=True, slots=True)
class Plan:
    """What both services are asked. ``explain`` says an engine's refusal in the client's words."""

    generate: GenerateInput
    format: FormatInput
    opening: Opening
    explain: Callable[[InvalidRequest], InvalidRequest]


@dataclass(slots=True)
class Progress:
    """How far one choice has come: what another attempt needs to go on after it."""

    token_ids: array[int] = field(default_factory=lambda: array("I"))
    """What the engine has given."""
    chars_sent: int = 0
    """Of content, reasoning and arguments that were handed on."""
    is_generated: bool = False
    """The engine has ended it."""
    is_finished: bool = False
    """The detokenizer has ended it."""


class Attempt:
    """One try. A context manager: leaving it early tells both services.

    ``observe_step`` is told the seconds between two outputs of the engine. ``avoid`` holds addresses of replicas
    that are taken only if there is no other.
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
        self._has_news = True
        self._waiter: asyncio.Future[None] | None = None
        self._has_generated = False
        self._formatted: dict[int, None] = {}
        """Choices of which there is something to take, in order."""
        self._is_ping_due = False
        self._num_running = plan.generate.n
        self._error: ServiceError | None = None
        self._ping_timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        with ExitStack() as context:
            self._start(context)
            self._context = context.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._context.close()

    async def batches(
        self, give_up: Callable[[ServiceError], None], ping_seconds: float | None = None
    ) -> AsyncGenerator[list[Event], None]:
        """All that has happened since the last batch, until every choice has ended. Raises ``ServiceError``.

        ``give_up`` is called when batches are taken so slowly that a service has ended the work. What came before an
        error is given before it.
        """
        self._watch(give_up)
        if ping_seconds is not None:
            self._ping_later(ping_seconds)
        while self._num_running:
            await self._wait()
            if batch := self._take():
                yield batch
            if self._has_generated or self._formatted:
                self._has_news = True
                await asyncio.sleep(0)  # Others have their turn between two portions.
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

    def _watch(self, give_up: Callable[[ServiceError], None]) -> None:
        self._generation.watch(self._on_generated, give_up)
        for index, formatting in enumerate(self._formattings):
            formatting.watch(partial(self._on_formatted, index), give_up)

    def _on_generated(self) -> None:
        self._has_generated = True
        self._wake()

    def _on_formatted(self, index: int) -> None:
        self._formatted[index] = None
        self._wake()

    def _wake(self) -> None:
        self._has_news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        """An event with one waiter, which is what it takes: this is done for every token."""
        if not self._has_news:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._has_news = False

    def _ping_later(self, seconds: float) -> None:
        self._ping_timer = asyncio.get_running_loop().call_later(seconds, self._ping, seconds)

    def _ping(self, seconds: float) -> None:
        self._is_ping_due = True
        self._wake()
        self._ping_later(seconds)

    def _take(self) -> list[Event]:
        """Move on whatever has come. The first error is kept until the rest is taken."""
        batch: list[Event] = []
        try:
            if self._has_generated:
                self._take_generated(batch)
        except ServiceError as error:
            self._error = self._error or error
        formatted, self._formatted = self._formatted, {}
        for index in formatted:
            try:
                self._take_formatted(index, batch)
            except ServiceError as error:
                self._error = self._error or error
        if self._is_ping_due:
            self._is_ping_due = False
            batch.append(Signal.PING)
        return batch

    def _take_generated(self, batch: list[Event]) -> None:
        self._has_generated = False
        try:
            event = self._generation.take()
        except InvalidRequest as error:
            raise self._plan.explain(error) from None
        if event is not None:
            self._has_generated = self._generation.has_more
            self._send(event, batch)
        has_ended = self._generation.is_over
        if has_ended and not all(choice.is_generated or choice.is_finished for choice in self.choices):
            raise InternalError

    def _send(self, event: GenerateEvent, batch: list[Event]) -> None:
        """Hand what the engine has generated to the detokenizer."""
        if event.head is not None:
            self._record.note_head(event.head)
            batch.append(Signal.BEGUN)
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
                self._formatted[index] = None
            choice.chars_sent += sum(delta.num_chars for delta in formatted.deltas)
            batch.append(Output(index, formatted))
            if formatted.finish is not None:
                self._finish(index, formatted.finish)
        if formatting.is_over and not choice.is_finished:
            raise InternalError

    def _finish(self, index: int, finish: Finish) -> None:
        """The engine is told, should it not have ended the choice itself."""
        self.choices[index].is_finished = True
        self._num_running -= 1
        self._record.note_finish(index, finish)
        self._generation.stop_choice(index)
