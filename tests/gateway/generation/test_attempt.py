"""An attempt between a fake engine and a fake detokenizer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.generation.attempt import Attempt
from gateway.generation.events import Chunk, ContentDelta, Event, Finish, Formatted, GenerateEvent, Head, Output, Signal
from gateway.generation.plan import Plan
from gateway.generation.prompt import Prompt, ReasoningState
from gateway.generation.record import RequestRecord
from gateway.generation.request import Sampling
from gateway.generation.services import FormatInput, GenerateInput, ServedModel
from svclib.errors import InternalError, InvalidRequest, PeerLost, ServiceError
from svclib.session import Opening
from tests.gateway.generation.test_model import model


@dataclass(eq=False)
class FakeStream:
    """A stream with the items of a test, one for each ``take``."""

    waiting: deque[Any] = field(default_factory=deque)
    error: ServiceError | None = None
    ended: bool = False
    is_left: bool = False
    sent: list[Chunk] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    on_news: Callable[[], None] = lambda: None

    def start(self) -> None: ...

    def leave(self) -> None:
        self.is_left = True

    def watch(self, on_news: Callable[[], None], on_slow: Callable[[ServiceError], None]) -> None:
        self.on_news = on_news
        if self.waiting or self.ended:
            on_news()

    def say(self, *items: Any, error: ServiceError | None = None, end: bool = False) -> None:
        self.waiting.extend(items)
        self.error, self.ended = error, end or error is not None
        self.on_news()

    def take(self) -> Any:
        if self.waiting:
            return self.waiting.popleft()
        if self.error is not None:
            raise self.error
        return None

    @property
    def is_over(self) -> bool:
        return self.ended and self.error is None and not self.waiting

    @property
    def has_more(self) -> bool:
        return bool(self.waiting) or self.error is not None

    def send(self, chunk: Chunk) -> None:
        self.sent.append(chunk)

    def stop_choice(self, index: int) -> None:
        self.stopped.append(index)


class FakeReplicas:
    """One replica; ``made`` are the streams that it returned."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = self
        self.made: list[FakeStream] = []
        self.in_flight = 0
        self.avoided: list[Any] = []

    @contextmanager
    def choose(self, *, choices: int = 1, avoid: Any = frozenset()) -> Any:
        self.avoided.append(avoid)
        self.in_flight += choices
        yield self
        self.in_flight -= choices

    def generate(self, work: GenerateInput, opening: Opening) -> FakeStream:
        return self.format(work, opening)

    def format(self, work: Any, opening: Opening) -> FakeStream:
        self.made.append(FakeStream())
        return self.made[-1]


class Played:
    """An attempt and its fake services."""

    def __init__(self, n: int) -> None:
        self.record = RequestRecord("r")
        self.record.begin(n)
        self.engines, self.detokenizers = FakeReplicas("e:1"), FakeReplicas("d:1")
        tokenizers: Any = None
        served = ServedModel(model(), tokenizers, self.engines, self.detokenizers)
        work = GenerateInput(Prompt([1], [2], ReasoningState.CLOSED), Sampling(), n)
        self.plan = Plan(work, FormatInput(), Opening("r"), lambda error: InvalidRequest(f"said: {error.message}"))
        self.steps: list[float | None] = []
        self.attempt = Attempt(served, self.plan, self.record, self.steps.append, avoid={"e:9"})
        self.given_up: list[ServiceError] = []

    @property
    def engine(self) -> FakeStream:
        return self.engines.made[0]

    def formatting(self, index: int = 0) -> FakeStream:
        return self.detokenizers.made[index]


@asynccontextmanager
async def playing(n: int = 1, ping: float | None = None) -> AsyncIterator[tuple[Played, Any]]:
    played = Played(n)
    with played.attempt:
        async with asyncio.timeout(10), aclosing(played.attempt.batches(played.given_up.append, ping)) as batches:
            yield played, batches
    assert (played.engines.in_flight, played.detokenizers.in_flight) == (0, 0)
    assert all(stream.is_left for stream in (*played.engines.made, *played.detokenizers.made))


def generated(*token_ids: int, index: int = 0, finish: str = "") -> GenerateEvent:
    return GenerateEvent([Chunk(index, token_ids, None, finish, False)], None, None)


def formatted(text: str, finish: Finish | None = None) -> Formatted:
    return Formatted([ContentDelta(text)] if text else [], [], finish)


DONE = Finish("stop", 3, 0)


async def test_tokens_are_sent_and_text_is_yielded() -> None:
    async with playing() as (played, batches):
        played.engine.say(GenerateEvent([], Head(5, 2, 7), None))
        assert await anext(batches) == [Signal.STARTED]
        played.engine.say(generated(3, 4))
        reading = asyncio.create_task(anext(batches))
        for _ in range(3):
            await asyncio.sleep(0)
        assert [list(chunk.token_ids) for chunk in played.formatting().sent] == [[3, 4]]
        played.formatting().say(formatted("hé"))
        assert await reading == [Output(0, formatted("hé"))]
        (choice,) = played.attempt.choices
        assert (list(choice.token_ids), choice.chars_sent, choice.is_generated) == ([3, 4], 2, False)
        played.engine.say(generated(5, finish="stop"), end=True)
        played.formatting().say(formatted("", DONE), end=True)
        assert await anext(batches) == [Output(0, formatted("", DONE))]
        assert [list(chunk.token_ids) for chunk in played.formatting().sent] == [[3, 4], [5]]
        assert (list(choice.token_ids), choice.is_generated, choice.is_finished) == ([3, 4, 5], True, True)
        with pytest.raises(StopAsyncIteration):
            await anext(batches)
        assert played.record.replicas == {"engine": "e:1", "detokenizer": "d:1"}
        assert played.engines.avoided == played.detokenizers.avoided == [{"e:9"}]
        assert len(played.steps) == 2


async def test_batch_has_everything_that_waits() -> None:
    async with playing(n=2) as (played, batches):
        played.engine.say(GenerateEvent([], Head(5, 2, 7), None))
        played.formatting(0).say(formatted("a"))
        played.formatting(1).say(formatted("b"))
        assert await anext(batches) == [Signal.STARTED, Output(0, formatted("a")), Output(1, formatted("b"))]


async def test_nothing_is_passed_on_without_a_reader() -> None:
    async with playing() as (played, batches):
        played.engine.say(GenerateEvent([], Head(5, 2, 7), None))
        await anext(batches)
        played.engine.say(generated(3))
        for _ in range(5):
            await asyncio.sleep(0)
        assert played.formatting().sent == []
        assert len(played.engine.waiting) == 1


async def test_other_tasks_run_between_batches() -> None:
    async with playing() as (played, batches):
        played.engine.say(*(generated(number) for number in range(50)))
        played.formatting().say(*(formatted("x") for _ in range(50)))
        turns = 0

        async def neighbour() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        running = asyncio.create_task(neighbour())
        batch_count = 0
        async for batch in batches:
            batch_count += len(batch)
            if batch_count == 50:
                break
        running.cancel()
        assert turns >= 49


async def test_early_finish_stops_the_choice_in_the_engine() -> None:
    async with playing(n=2) as (played, batches):
        played.formatting(1).say(formatted("", DONE), end=True)
        assert await anext(batches) == [Output(1, formatted("", DONE))]
        assert played.engine.stopped == [1]
        assert played.record.finish_reasons == ["", "stop"]


@pytest.mark.parametrize("service", ["engine", "detokenizer"])
async def test_output_before_an_error_is_yielded_first(service: str) -> None:
    async with playing() as (played, batches):
        played.formatting().say(formatted("a"))
        lost = PeerLost("gone")
        (played.engine if service == "engine" else played.formatting()).say(error=lost)
        assert await anext(batches) == [Output(0, formatted("a"))]
        with pytest.raises(PeerLost):
            await anext(batches)


async def test_output_of_one_service_is_yielded_before_the_error_of_the_other() -> None:
    async with playing() as (played, batches):
        played.formatting().say(formatted("a"), formatted("b"), formatted("c"))
        played.engine.say(error=PeerLost("gone"))
        said: list[list[Event]] = []
        with pytest.raises(PeerLost):
            while True:
                said.append(await anext(batches))
        assert said == [[Output(0, formatted(text))] for text in "abc"]


async def test_error_after_the_last_choice_is_ignored() -> None:
    async with playing() as (played, batches):
        played.formatting().say(formatted("", DONE), end=True)
        played.engine.say(error=PeerLost("gone"))
        assert [batch async for batch in batches] == [[Output(0, formatted("", DONE))]]


async def test_engine_error_is_explained() -> None:
    async with playing() as (played, batches):
        played.engine.say(error=InvalidRequest("no", param="x"))
        with pytest.raises(InvalidRequest, match="said: no"):
            await anext(batches)


@pytest.mark.parametrize("service", ["engine", "detokenizer"])
async def test_stream_end_without_a_finish_reason_is_an_error(service: str) -> None:
    async with playing() as (played, batches):
        (played.engine if service == "engine" else played.formatting()).say(end=True)
        with pytest.raises(InternalError):
            await anext(batches)


async def test_pings() -> None:
    async with playing(ping=0.01) as (played, batches):
        assert [await anext(batches), await anext(batches)] == [[Signal.PING]] * 2
        played.formatting().say(formatted("", DONE), end=True)
        assert Output(0, formatted("", DONE)) in await anext(batches)


async def test_leaving_early_cancels_both_services() -> None:
    async with playing(n=3) as (played, batches):
        played.engine.say(GenerateEvent([], Head(5, 2, 7), None))
        await anext(batches)
    assert len(played.detokenizers.made) == 3
