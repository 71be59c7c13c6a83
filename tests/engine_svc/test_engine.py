from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from itertools import count

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from engine_svc.engine import Engine
from engine_svc.metrics import EngineMetrics
from engine_svc.output import RequestHead, Sampled
from engine_svc.request import Request, Script
from engine_svc.runners.interface import DeviceLost
from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.capacity import Capacity
from engine_svc.scheduling.step import Plan, ScheduledSequence, StepLimits
from engine_svc.step_engine import MAX_STEP_FAULTS
from svclib.errors import InternalError, InvalidRequest
from tests.engine_svc import given
from tests.engine_svc.given import Running
from tests.engine_svc.paged_model import VOCAB_SIZE, PagedModel, expected_output

Tamper = Callable[[SequenceOf[ScheduledSequence], list[Sampled | Exception]], list[Sampled | Exception]]


class FaultyModel(PagedModel):
    """A model whose results are changed by ``tamper``."""

    tamper: Tamper = staticmethod(lambda _batch, results: results)

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        return self.tamper(batch, super().execute(batch))


def engine(num_blocks: int = 64, block_size: int = 4, *, chunk: int = 64, caching: bool = True) -> Running:
    model = FaultyModel(num_blocks, block_size)
    return Running(model, given.scheduler(num_blocks, block_size, chunk=chunk, caching=caching))


def model_of(running: Running) -> FaultyModel:
    runner = running.engine._runner
    assert isinstance(runner, FaultyModel)
    return runner


def only(request_name: str, fault: Callable[[Sampled | Exception], Sampled | Exception]) -> Tamper:
    """Tamper with the results of one request."""

    def tamper(batch: SequenceOf[ScheduledSequence], results: list[Sampled | Exception]) -> list[Sampled | Exception]:
        names = [entry.sequence.request.request_id for entry in batch if entry.samples]
        return [fault(result) if name == request_name else result for name, result in zip(names, results, strict=True)]

    return tamper


def failing(_batch: SequenceOf[ScheduledSequence], _results: list[Sampled | Exception]) -> list[Sampled | Exception]:
    raise RuntimeError("the whole step")


def test_one_request_from_beginning_to_end() -> None:
    running = engine()
    number = running.add(given.request([5, 6, 7], 3, seed=42))
    assert running.run() == 3
    answer = running.answers[number]
    assert answer.token_ids == {0: expected_output([5, 6, 7], 0, 3)}
    assert answer.finish_reasons == {0: "length"}
    assert answer.heads == [RequestHead(num_prompt_tokens=3, num_cached_tokens=0, seed=42)]
    assert [len(chunk.token_ids) for chunk in answer.chunks] == [1, 1, 1]
    assert model_of(running).released == [number]


def test_an_idle_engine_does_nothing() -> None:
    running = engine()
    assert not running.step()
    assert running.engine.seconds_until_due() is None
    assert model_of(running).num_steps == 0


def test_times_are_in_order() -> None:
    running = engine(chunk=2)
    number = running.add(given.request(5, 3))
    running.run()
    stats = running.answers[number].stats
    assert stats is not None
    times = [stats.queue_enter_at, stats.prefill_start_at, stats.first_token_at, stats.last_token_at]
    assert times == sorted(times)
    assert times[0] == 1.0
    assert stats.num_preemptions == 0


def test_cached_tokens_are_reported() -> None:
    running = engine()
    numbers = []
    for _ in range(2):
        numbers.append(running.add(given.request(10, 2, n=2)))
        running.run()
    assert [running.answers[number].heads[0].num_cached_tokens for number in numbers] == [0, 8]


@pytest.mark.parametrize("caching", [True, False])
def test_choices_share_the_prompt_and_differ(caching: bool) -> None:
    running = engine(caching=caching)
    number = running.add(given.request(21, 5, n=4))
    running.run()
    prompt = list(range(1, 22))
    assert running.answers[number].token_ids == {index: expected_output(prompt, index, 5) for index in range(4)}
    # The prompt once, its last token and four more for each of the others, four more for the first.
    assert model_of(running).num_computed == 21 + 3 * (1 + 4) + 4
    assert len(running.answers[number].heads) == 1
    assert sorted(model_of(running).released) == [number, number + 1, number + 2, number + 3]


@pytest.mark.parametrize("cut", [1, 4, 11])
@pytest.mark.parametrize("num_blocks", [64, 9])
def test_a_resumed_request_yields_the_rest(cut: int, num_blocks: int) -> None:
    running = engine(num_blocks=num_blocks, chunk=3)
    prompt = list(range(1, 11))
    expected = expected_output(prompt, 0, 12)
    whole = running.add(given.request(prompt, 12))
    resumed = [running.add(given.request(prompt, 12, output=expected[:cut])) for _ in range(2)]
    running.run()
    assert running.answers[whole].token_ids == {0: expected}
    for number in resumed:
        assert running.answers[number].token_ids == {0: expected[cut:]}
        assert running.answers[number].finish_reasons == {0: "length"}
        assert running.answers[number].heads[0].num_cached_tokens <= len(prompt)


def test_a_stopped_choice_yields_no_more_and_the_others_continue() -> None:
    running = engine()
    number = running.add(given.request(6, 5, n=3))
    running.step()
    running.step()
    running.stop_choice(number, 1)
    running.run()
    answer = running.answers[number]
    assert answer.finish_reasons == {0: "length", 2: "length"}
    assert len(answer.token_ids[1]) < 5
    assert running.sample("vllm:request_success_total", finished_reason="stop") == 1
    assert running.sample("vllm:request_success_total", finished_reason="length") == 2


def test_stopping_the_last_choice_ends_the_request_at_once() -> None:
    running = engine()
    number = running.add(given.request(6, 50))
    running.step()
    running.stop_choice(number, 0)
    answer = running.answers[number]
    assert answer.is_over
    assert (answer.error, answer.finish_reasons) == (None, {})
    assert running.scheduler.num_free_blocks == 64
    running.stop_choice(number, 0)
    assert running.run() == 0


def test_a_request_stopped_before_it_began_still_has_a_head() -> None:
    running = engine()
    number = running.add(given.request(6, 50))
    running.stop_choice(number, 0)
    assert running.answers[number].heads == [RequestHead(6, 0, 0)]
    stats = running.answers[number].stats
    assert stats is not None
    assert (stats.prefill_start_at, stats.first_token_at) == (0.0, 0.0)


# The requests of G02 and G10: pools so small that somebody has to give way.


@pytest.mark.parametrize("caching", [True, False])
def test_two_requests_in_a_pool_for_one_get_what_a_large_pool_gives(caching: bool) -> None:
    requests = [given.request([1, *range(50, 58)], 20), given.request([2, *range(50, 58)], 20)]
    answers = []
    for num_blocks in (8, 1000):
        running = engine(num_blocks, 4, chunk=8, caching=caching)
        numbers = [running.add(request) for request in requests]
        running.run()
        answers.append([running.answers[number].token_ids for number in numbers])
        assert running.scheduler.num_free_blocks == num_blocks
        preempted = running.sample("vllm:num_preemptions_total")
        assert (preempted > 0) == (num_blocks == 8)
    assert answers[0] == answers[1]


def test_preemptions_are_reported_in_the_stats() -> None:
    running = engine(8, 4)
    numbers = [running.add(given.request([first, 2, 3], 22)) for first in (1, 2)]
    running.run()
    preemptions = [stats.num_preemptions for number in numbers if (stats := running.answers[number].stats)]
    assert preemptions[0] == 0
    assert preemptions[1] > 0
    assert sum(preemptions) == running.sample("vllm:num_preemptions_total")


def test_two_long_prompts_in_a_small_pool_both_finish_in_bounded_time() -> None:
    running = engine(10, 4, chunk=8)
    numbers = [running.add(given.request([first, *range(2, 31)], 8)) for first in (1, 2)]
    steps = running.run(at_most=1000)
    for number in numbers:
        assert running.answers[number].finish_reasons == {0: "length"}
    assert steps <= 2 * (4 + 8)


def test_requests_that_never_fit_are_refused_and_the_rest_continues() -> None:
    capacity = Capacity(max_model_len=1024, block_size=16, num_blocks=4)
    with pytest.raises(InvalidRequest):
        capacity.max_tokens(80, 1)
    running = engine(4, 16)
    number = running.add(given.request(8, capacity.max_tokens(8, 4)))
    running.run()
    assert running.answers[number].finish_reasons == {0: "length"}


@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.parametrize("num_blocks", [64, 1000])
def test_answers_depend_on_the_request_alone(block_size: int, caching: bool, chunk: int, num_blocks: int) -> None:
    prompts = [[number, *range(3 * number)] for number in range(1, 17)]
    running = engine(num_blocks * 4 // block_size, block_size, chunk=chunk, caching=caching)
    numbers = [running.add(given.request(prompt, 32)) for prompt in prompts]
    running.run()
    for number, prompt in zip(numbers, prompts, strict=True):
        assert running.answers[number].token_ids[0] == expected_output(prompt, 0, 32)
    if num_blocks == 64:
        assert running.sample("vllm:num_preemptions_total") > 0


# Faults stay where they happened.


@pytest.mark.parametrize("token_id", [-7, VOCAB_SIZE, 2**40])
def test_a_token_outside_the_vocabulary_ends_its_request_alone(token_id: int) -> None:
    running = engine()
    model_of(running).tamper = only("bad", lambda _result: Sampled((token_id,)))
    numbers = [running.add(given.request([first, 2], 4, name=name)) for first, name in ((1, "a"), (2, "bad"), (3, "c"))]
    running.run()
    good, bad, also_good = (running.answers[number] for number in numbers)
    assert isinstance(bad.error, InternalError)
    assert bad.token_ids == {}
    assert good.finish_reasons == also_good.finish_reasons == {0: "length"}
    assert running.scheduler.num_free_blocks == 64
    assert running.sample("pellucid_engine_requests_failed_total") == 1
    assert running.sample("vllm:request_success_total", finished_reason="error") == 1


def test_an_invalid_token_after_valid_ones_is_noticed() -> None:
    running = engine()
    model_of(running).tamper = only("bad", lambda _result: Sampled((1, 2, -1)))
    number = running.add(given.request(2, 2, name="bad"))
    running.run()
    assert isinstance(running.answers[number].error, InternalError)


def test_an_exception_for_one_sequence_ends_its_request_alone() -> None:
    running = engine()
    model_of(running).tamper = only("bad", lambda _result: ValueError("secret"))
    numbers = [running.add(given.request([first, 2], 4, name=name)) for first, name in ((1, "a"), (2, "bad"))]
    running.run()
    assert running.answers[numbers[0]].finish_reasons == {0: "length"}
    error = running.answers[numbers[1]].error
    assert error is not None
    assert error.message == "internal error"


def test_a_service_error_keeps_its_message() -> None:
    running = engine()
    model_of(running).tamper = only("bad", lambda _result: InvalidRequest("no such grammar", param="response_format"))
    number = running.add(given.request(2, 4, name="bad"))
    running.run()
    error = running.answers[number].error
    assert isinstance(error, InvalidRequest)
    assert error.param == "response_format"


def test_an_invalid_request_is_not_counted_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    # A log of its own: the common one leaves out what a test before may have set below its level.
    logged = LogCapture()
    own = structlog.wrap_logger(None, processors=[logged], wrapper_class=structlog.BoundLogger)
    monkeypatch.setattr("engine_svc.engine.log", own)
    running = engine()
    model_of(running).tamper = only("bad", lambda _result: InvalidRequest("no such grammar", param="response_format"))
    running.add(given.request(2, 4, n=2, name="bad"))
    running.run()
    assert [(entry["event"], entry["log_level"], entry.get("exc_info")) for entry in logged.entries] == [
        ("request refused", "info", None)
    ]
    assert running.sample("pellucid_engine_requests_failed_total") == 0
    assert running.sample("vllm:request_success_total", finished_reason="error") == 2
    assert running.scheduler.num_free_blocks == 64


def test_a_fault_in_one_choice_ends_the_request_with_all_choices() -> None:
    running = engine()

    def fault(result: Sampled | Exception) -> Sampled | Exception:
        return ValueError() if isinstance(result, Sampled) and result.token_ids == tuple(second) else result

    second = expected_output([1, 2], 1, 1)
    model_of(running).tamper = only("bad", fault)
    number = running.add(given.request([1, 2], 4, n=3, name="bad"))
    running.run()
    assert isinstance(running.answers[number].error, InternalError)
    assert sorted(model_of(running).released) == [number, number + 1, number + 2]
    assert running.scheduler.num_free_blocks == 64


def test_faults_in_all_choices_are_one_failure() -> None:
    running = engine()
    number = running.add(given.request(2, 4, n=3))
    model_of(running).tamper = failing
    running.step()
    assert isinstance(running.answers[number].error, InternalError)
    assert running.sample("pellucid_engine_requests_failed_total") == 1
    assert running.sample("vllm:request_success_total", finished_reason="error") == 3


def test_a_failed_step_ends_the_requests_in_it_and_the_engine_continues() -> None:
    running = engine(chunk=4)
    numbers = [running.add(given.request(length, 4, name=str(length))) for length in (2, 30)]
    model_of(running).tamper = failing
    running.step()
    model_of(running).tamper = FaultyModel.tamper
    assert all(isinstance(running.answers[number].error, InternalError) for number in numbers)
    assert running.scheduler.num_free_blocks == 64
    later = running.add(given.request(30, 4))
    running.run()
    assert running.answers[later].token_ids[0] == expected_output(range(1, 31), 0, 4)
    assert running.answers[later].heads[0].num_cached_tokens == 0
    assert running.sample("pellucid_engine_step_faults_total") == 1


def test_a_failed_step_does_not_end_other_requests() -> None:
    running = engine()
    numbers = [running.add(given.request([number], 2)) for number in range(1, 12)]
    model_of(running).tamper = failing
    running.step()
    model_of(running).tamper = FaultyModel.tamper
    running.run()
    failed = [number for number in numbers if running.answers[number].error]
    assert failed == numbers[:8]  # max_num_seqs
    assert all(running.answers[number].finish_reasons for number in numbers[8:])
    assert running.scheduler.num_free_blocks == 64


def test_results_that_do_not_match_the_batch_are_a_failed_step() -> None:
    running = engine()
    number = running.add(given.request(2, 4))
    model_of(running).tamper = lambda _batch, results: results * 2
    running.step()
    assert isinstance(running.answers[number].error, InternalError)


def test_too_many_failed_steps_in_a_row_mean_that_the_device_is_lost() -> None:
    running = engine()
    model_of(running).tamper = failing
    for _ in range(MAX_STEP_FAULTS - 1):
        running.add(given.request(2, 4))
        running.step()
    running.add(given.request(2, 4))
    with pytest.raises(DeviceLost):
        running.step()


def test_a_successful_step_resets_the_count_of_failures() -> None:
    running = engine()
    for _ in range(2 * MAX_STEP_FAULTS):
        for tamper in (failing, FaultyModel.tamper):
            model_of(running).tamper = tamper
            running.add(given.request(2, 1))
            running.step()
    assert running.sample("pellucid_engine_step_faults_total") == 2 * MAX_STEP_FAULTS


def test_a_lost_device_is_not_survived() -> None:
    def lose(_batch: SequenceOf[ScheduledSequence], _results: list[Sampled | Exception]) -> list[Sampled | Exception]:
        raise DeviceLost("gone")

    running = engine()
    running.add(given.request(2, 4))
    model_of(running).tamper = lose
    with pytest.raises(DeviceLost, match="gone"):
        running.step()


# Leaving is legal at any moment: whatever the state, the blocks are back before the next step, and the others never
# notice.


def waiting(running: Running, request: Request) -> int:
    for _ in range(8):
        running.add(given.request([90], 3))
    return running.add(request)


def prefilling(running: Running, request: Request) -> int:
    number = running.add(request)
    running.step()
    return number


def decoding(running: Running, request: Request) -> int:
    number = running.add(request)
    while not running.answers[number].token_ids:
        running.step()
    return number


def asleep(running: Running, request: Request) -> int:
    model_of(running).tamper = only(request.request_id, lambda _result: Sampled((), resume_at=1e18))
    number = running.add(request)
    while running.step():
        pass
    return number


def preempted(running: Running, request: Request) -> int:
    running.add(given.request([91] * 9, 231))
    while running.scheduler.num_free_blocks > 4:
        running.step()
    number = running.add(request)
    while not running.sample("vllm:num_preemptions_total"):
        running.step()
    return number


def finished(running: Running, request: Request) -> int:
    number = running.add(request)
    running.run()
    return number


STATES = [waiting, prefilling, decoding, asleep, preempted, finished]


@pytest.mark.parametrize("reach", STATES)
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("leave", ["abort", "stop_first", "stop_all"])
def test_abort_in_every_state(reach: Callable[[Running, Request], int], n: int, caching: bool, leave: str) -> None:
    running = engine(60, 4, chunk=4, caching=caching)
    number = reach(running, given.request([5, 6, 7, 8, 9, 10], 40, n=n, name="leaver"))
    match leave:
        case "abort":
            running.abort(number)
        case "stop_first":
            running.stop_choice(number, 0)
        case "stop_all":
            for index in reversed(range(n)):
                running.stop_choice(number, index)
    if reach is asleep:
        running.abort(number)
    running.run()
    assert running.scheduler.num_free_blocks == 60
    assert sorted(model_of(running).released) == sorted(set(model_of(running).released))
    others = [answer for other, answer in running.answers.items() if other != number]
    assert all(answer.finish_reasons == {0: "length"} for answer in others)


def test_unknown_requests_are_ignored() -> None:
    running = engine()
    running.abort(5)
    running.stop_choice(5, 0)
    assert running.run() == 0


def test_an_aborted_request_yields_nothing_and_is_counted() -> None:
    running = engine()
    number = running.add(given.request(6, 50, n=3))
    running.step()
    running.abort(number)
    running.abort(number)
    running.run()
    assert not running.answers[number].is_over
    assert running.sample("pellucid_engine_requests_aborted_total") == 1
    assert running.sample("vllm:request_success_total", finished_reason="abort") == 3


def test_two_hundred_requests_aborted_at_any_moment_leak_no_block() -> None:
    running = engine(40, 4, chunk=8)
    for round_number in range(200):
        number = running.add(given.request([round_number % 7] * 11, 12, n=1 + round_number % 3))
        for _ in range(round_number % 9):
            running.step()
        running.abort(number)
        assert running.scheduler.num_free_blocks == 40


def test_loads_follow_the_scheduler() -> None:
    running = engine()
    for _ in range(10):
        running.add(given.request(4, 2))
    running.step()
    loads = running.engine.loads
    assert (loads.num_running, loads.num_waiting) == (8, 2)
    assert loads.num_free_blocks == running.scheduler.num_free_blocks < 64
    running.run()
    assert (running.engine.loads.num_running, running.engine.loads.num_free_blocks) == (0, 64)


def test_a_real_model_ignores_a_script() -> None:
    """Such a request is refused before the engine; inside, only the simulated runner reads scripts."""
    running = engine()
    number = running.add(given.request(2, 2, script=Script(((1,),))))
    running.run()
    assert running.answers[number].token_ids[0] == expected_output([1, 2], 0, 2)


class Learning(given.CheckedScheduler):
    """A scheduler that keeps what it is told to learn."""

    learned: list[tuple[int, float]]

    def learn(self, plan: Plan, seconds: float) -> None:
        self.learned.append((plan.num_tokens, seconds))


def test_the_time_of_every_step_with_results_is_learned() -> None:
    model = FaultyModel(64, 4)
    scheduler = Learning(StepLimits(8, 64, 64), BlockManager(64, 4, model="m"))
    scheduler.learned = []
    ticks = count(0.0, 0.25)
    engine = Engine(model, scheduler, EngineMetrics(CollectorRegistry(), "m"), clock=lambda: next(ticks))
    assert not engine.step()  # a step without a sequence says nothing about the others
    engine.add(0, given.request(5, 3))
    engine.step()
    engine.step()
    assert scheduler.learned == [(5, 0.25), (1, 0.25)]
    model.tamper = failing
    engine.step()
    assert len(scheduler.learned) == 2
