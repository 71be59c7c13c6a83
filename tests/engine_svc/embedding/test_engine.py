from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from engine_svc.embedding.engine import EmbeddingEngine
from engine_svc.metrics import EngineMetrics
from engine_svc.runners.interface import DeviceLost
from engine_svc.step_engine import MAX_STEP_FAULTS
from svclib.errors import InternalError
from tests.engine_svc.embedding.fakes import BAD_TOKEN, Failing, FakeRunner, request


class Running:
    """An engine, stepped by the test instead of a thread."""

    def __init__(self, runner: FakeRunner) -> None:
        self.registry = CollectorRegistry()
        self.engine = EmbeddingEngine(runner, EngineMetrics(self.registry, "m"))
        self._outcomes: list[list[object]] = []

    def add(self, *texts: tuple[int, ...]) -> tuple[int, list[object]]:
        """Add a request; returns its id and the list that receives its outcome."""
        outcomes: list[object] = []
        group_id = len(self._outcomes)
        self._outcomes.append(outcomes)
        self.engine.add(group_id, request(*texts))
        return group_id, outcomes

    def step(self) -> bool:
        """Run one pass and collect its outcomes."""
        moved = self.engine.step()
        for output in self.engine.take_outputs():
            self._outcomes[output.group_id].append(output.outcome)
        return moved

    def run(self) -> int:
        """Run passes until no text is left; returns their number."""
        count = 0
        while self.step():
            count += 1
        return count

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"model_name": "m", **labels})


def vectors(outcomes: list[object]) -> list[list[float]]:
    (outcome,) = outcomes
    assert isinstance(outcome, list)
    return [vector.tolist() for vector in outcome]


def test_requests_share_passes() -> None:
    runner = FakeRunner()
    running = Running(runner)
    _, first = running.add((1, 2), (3,))
    _, second = running.add((4, 5, 6))

    assert running.run() == 1

    assert vectors(first) == [[3, 2], [3, 1]]
    assert vectors(second) == [[15, 3]]
    assert runner.texts == [(1, 2), (4, 5, 6), (3,)]


def test_a_failed_text_ends_its_request_only() -> None:
    runner = FakeRunner()
    running = Running(runner)
    _, bad = running.add((BAD_TOKEN,), *[(7,) * 20] * 3)
    _, good = running.add((1,))

    running.run()

    assert [type(outcome) for outcome in bad] == [InternalError]
    assert vectors(good) == [[1, 1]]
    assert (7,) * 20 not in runner.texts, "the rest of a failed request is not computed"
    assert running.sample("vllm:request_success_total", finished_reason="error") == 1
    assert running.sample("vllm:request_success_total", finished_reason="stop") == 1


def test_a_failed_pass_ends_only_its_requests() -> None:
    running = Running(Failing(times=1))
    _, first = running.add((1,) * 20)
    _, second = running.add((2,) * 20)

    assert running.run() == 2

    assert [type(outcome) for outcome in first] == [InternalError]
    assert vectors(second) == [[40, 20]]
    assert running.sample("pellucid_engine_step_faults_total") == 1


def test_several_failed_passes_in_a_row_are_a_lost_device() -> None:
    running = Running(Failing(times=MAX_STEP_FAULTS))
    for _ in range(MAX_STEP_FAULTS):
        running.add((1,) * 20)

    with pytest.raises(DeviceLost, match="5 steps in a row failed"):
        running.run()


def test_a_successful_pass_resets_the_fault_count() -> None:
    failing = Failing(times=MAX_STEP_FAULTS - 1)
    running = Running(failing)
    for _ in range(2):
        for _ in range(MAX_STEP_FAULTS):
            running.add((1,) * 20)
        running.run()
        failing.times = MAX_STEP_FAULTS - 1


def test_an_aborted_request_is_not_computed() -> None:
    runner = FakeRunner()
    running = Running(runner)
    aborted, outcomes = running.add(*[(7,) * 20] * 3)
    running.step()

    running.engine.abort(aborted)
    running.engine.abort(aborted)

    assert running.run() == 0
    assert len(runner.texts) == 1
    assert outcomes == []
    assert running.sample("pellucid_engine_requests_aborted_total") == 1


def test_aborting_a_finished_request_has_no_effect() -> None:
    running = Running(FakeRunner())
    job, _ = running.add((1,))
    running.run()

    running.engine.abort(job)

    assert running.sample("pellucid_engine_requests_aborted_total") == 0


def test_metrics_count_tokens_and_passes() -> None:
    running = Running(FakeRunner())
    running.add((1,) * 20, (2,) * 5)

    running.run()

    assert running.sample("vllm:prompt_tokens_total") == 25
    assert running.sample("vllm:iteration_tokens_total_count") == 2
    assert running.sample("vllm:iteration_tokens_total_sum") == 25
    assert running.engine.loads.num_running == 0
