from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from collections.abc import Sequence as SequenceOf
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from prometheus_client import CollectorRegistry

from engine_svc.engine import Engine
from engine_svc.heartbeat import Heartbeat
from engine_svc.metrics import EngineMetrics
from engine_svc.output import RequestOutput, Sampled
from engine_svc.request import Request, Script
from engine_svc.runners.interface import DeviceLost, Runner
from engine_svc.runners.simulated.runner import SimulatedRunner
from engine_svc.scheduling.capacity import Slots
from engine_svc.scheduling.step import ScheduledSequence
from engine_svc.step_loop import StepLoop
from svclib.errors import Overloaded, Unavailable
from tests.engine_svc import given
from tests.engine_svc.given import Answer
from tests.engine_svc.paged_model import PagedModel, expected_output
from tests.engine_svc.runners.simulated.test_runner import INFO


class Gate(PagedModel):
    """A model that computes only while its gate is open."""

    def __init__(self) -> None:
        super().__init__(64, 4)
        self.open = threading.Event()
        self.entered = threading.Event()

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        self.entered.set()
        assert self.open.wait(30)
        return super().execute(batch)


class Doomed(PagedModel):
    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        raise DeviceLost("gone")


class Panicking(PagedModel):
    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        raise PanicException("index out of bounds")


class PanicException(BaseException):
    """As pyo3 raises it."""


class CountingHeartbeat(Heartbeat):
    num_steps_done = 0

    def step_done(self) -> None:
        self.num_steps_done += 1
        super().step_done()


class AwaitableAnswer(Answer):
    """An answer that can be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    def add(self, output: RequestOutput) -> None:
        super().add(output)
        if self.is_over:
            self.over.set()


def engine_of(runner: Runner) -> Engine:
    return Engine(runner, given.scheduler(), EngineMetrics(CollectorRegistry(), "m"))


@asynccontextmanager
async def running(
    runner: Runner | Engine,
    *,
    max_waiting: int = 100,
    deaths: list[str] | None = None,
    heartbeat: Heartbeat | None = None,
) -> AsyncIterator[StepLoop[Request, RequestOutput]]:
    engine = runner if isinstance(runner, Engine) else engine_of(runner)
    died = [] if deaths is None else deaths
    loop = StepLoop(engine, Slots(8, max_waiting), heartbeat or Heartbeat(60.0), lambda: died.append("died"))
    loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


async def finished(answer: AwaitableAnswer) -> AwaitableAnswer:
    async with asyncio.timeout(30):
        await answer.over.wait()
    return answer


async def test_many_requests_get_their_outputs() -> None:
    answers = [AwaitableAnswer() for _ in range(20)]
    async with running(PagedModel(64, 4)) as loop:
        for number, answer in enumerate(answers):
            loop.submit(given.request([number, 2, 3], 5, n=1 + number % 2), answer.add)
        for number, answer in enumerate(answers):
            assert (await finished(answer)).token_ids[0] == expected_output([number, 2, 3], 0, 5)


async def test_listeners_are_called_on_the_event_loop() -> None:
    threads = set()
    answer = AwaitableAnswer()

    def listen(output: RequestOutput) -> None:
        threads.add(threading.get_ident())
        answer.add(output)

    async with running(PagedModel(64, 4)) as loop:
        loop.submit(given.request(), listen)
        await finished(answer)
    assert threads == {threading.get_ident()}


async def test_one_call_a_step_however_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    event_loop = asyncio.get_running_loop()
    call_soon_threadsafe = event_loop.call_soon_threadsafe

    def counting(callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        if args and isinstance(args[0], list):
            calls.append(args)
        return call_soon_threadsafe(callback, *args)

    model = Gate()
    answers = [AwaitableAnswer() for _ in range(8)]
    async with running(model) as loop:
        monkeypatch.setattr(event_loop, "call_soon_threadsafe", counting)
        for number, answer in enumerate(answers):
            loop.submit(given.request([number], 5), answer.add)
        model.open.set()
        for answer in answers:
            await finished(answer)
        monkeypatch.undo()
    assert len(calls) <= model.num_steps
    assert max(len(outputs) for (outputs,) in calls) == 8


async def test_no_output_after_an_abort() -> None:
    model, answer = Gate(), AwaitableAnswer()
    async with running(model) as loop:
        number = loop.submit(given.request(4, 50), answer.add)
        await asyncio.to_thread(model.entered.wait, 30)
        loop.abort(number)
        loop.abort(number)
        model.open.set()
        later = AwaitableAnswer()
        loop.submit(given.request([9], 2), later.add)
        await finished(later)
    assert not answer.chunks
    assert not answer.is_over


async def test_aborts_release_slots_at_once_and_blocks_with_the_next_step() -> None:
    model, answer = Gate(), AwaitableAnswer()
    async with running(model, max_waiting=0) as loop:
        numbers = [loop.submit(given.request([number], 50, n=2), answer.add) for number in range(4)]
        await asyncio.to_thread(model.entered.wait, 30)
        with pytest.raises(Overloaded):
            loop.submit(given.request(), answer.add)
        for number in numbers:
            loop.abort(number)
        assert loop.loads.num_waiting == 0
        last = AwaitableAnswer()
        loop.submit(given.request([9], 2, n=8), last.add)
        model.open.set()
        await finished(last)
        assert loop.loads.num_free_blocks == 64


async def test_queued_commands_count_as_waiting() -> None:
    model, answer = Gate(), AwaitableAnswer()
    async with running(model) as loop:
        numbers = [loop.submit(given.request([number], 2), answer.add) for number in range(3)]
        assert loop.loads.num_running + loop.loads.num_waiting == 3
        for number in numbers:
            loop.abort(number)
        model.open.set()


async def test_stopping_a_choice() -> None:
    model, answer = Gate(), AwaitableAnswer()
    engine = engine_of(model)
    async with running(engine) as loop:
        number = loop.submit(given.request([1, 2], 50, n=2), answer.add)
        loop.command(lambda: engine.stop_choice(number, 0))
        model.open.set()
        await finished(answer)
        loop.command(lambda: engine.stop_choice(number, 1))
    assert answer.finish_reasons == {1: "length"}


@pytest.mark.parametrize("model", [Doomed, Panicking])
async def test_a_lost_device_fails_every_request_once(model: type[PagedModel]) -> None:
    deaths: list[str] = []
    answers = [AwaitableAnswer() for _ in range(12)]
    async with running(model(64, 4), deaths=deaths) as loop:
        for answer in answers:
            loop.submit(given.request(), answer.add)
        for answer in answers:
            assert isinstance((await finished(answer)).error, Unavailable)
        with pytest.raises(Unavailable):
            loop.submit(given.request(), answers[0].add)
    assert deaths == ["died"]


async def test_an_idle_loop_and_a_sleeping_one_use_no_cpu() -> None:
    process = psutil.Process()

    def spent(thread_id: int) -> float:
        return next(thread.user_time + thread.system_time for thread in process.threads() if thread.id == thread_id)

    answer, quick = AwaitableAnswer(), AwaitableAnswer()
    async with running(SimulatedRunner(INFO)) as loop:
        thread_id = loop._thread.native_id
        assert thread_id is not None
        loop.submit(given.request(4, 4, script=Script(((65,),), delay=3600.0)), answer.add)
        loop.submit(given.request([3], 4), quick.add)
        await finished(quick)
        before = spent(thread_id)
        await asyncio.sleep(0.3)
        assert spent(thread_id) - before <= 0.03


async def test_every_step_is_a_beat() -> None:
    model, answer, heartbeat = PagedModel(64, 4), AwaitableAnswer(), CountingHeartbeat(60.0)
    async with running(model, heartbeat=heartbeat) as loop:
        loop.submit(given.request(4, 9), answer.add)
        await finished(answer)
    assert heartbeat.num_steps_done == model.num_steps == 9


async def test_stopping_an_idle_loop_ends_its_thread() -> None:
    async with running(PagedModel(64, 4)) as loop:
        thread = loop._thread
        assert thread.is_alive()
    assert not thread.is_alive()
