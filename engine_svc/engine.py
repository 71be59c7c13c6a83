"""The engine: requests in, one step after another, outputs out.

Runs in one thread, the step loop's (``step_loop.py``), and knows nothing of threads, of protobuf, or of how a step is
computed. Faults are contained: a bad result ends its request, a failed step ends the requests in it, and only a lost
device, or too many failed steps in a row, end the engine with ``DeviceLost``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import structlog

from engine_svc.metrics import EngineMetrics
from engine_svc.output import ChoiceOutput, Loads, RequestOutput, Sampled
from engine_svc.request import Request
from engine_svc.request_state import RequestState
from engine_svc.runners.interface import Runner
from engine_svc.scheduling.scheduler import Scheduler
from engine_svc.scheduling.sequence import Sequence, Status
from engine_svc.scheduling.step import Outcome, Plan, ScheduledSequence
from engine_svc.step_engine import StepFaults
from svclib.errors import InvalidRequest, ServiceError, public

log = structlog.get_logger(__name__)


class Engine:
    """Owns the running requests. Every method may be called in any state of the request it names, or after its end."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        metrics: EngineMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` measures steps, and says which sequences are due."""
        self._runner = runner
        self._scheduler = scheduler
        self._metrics = metrics
        self._clock = clock
        self._states: dict[int, RequestState] = {}
        self._outputs: list[RequestOutput] = []
        self._faults = StepFaults(metrics, "step failed")
        self._loads = self._measure()

    @property
    def loads(self) -> Loads:
        """The load of the last step; from any thread."""
        return self._loads

    def add(self, group_id: int, request: Request) -> None:
        """Add a request; its choices get the sequence ids from ``group_id`` on."""
        state = RequestState(request, group_id)
        self._states[group_id] = state
        self._scheduler.add(state.sequences)

    def abort(self, group_id: int) -> None:
        """End a request without an output."""
        state = self._states.pop(group_id, None)
        if state is not None:
            self._metrics.count_abort(self._end(state.sequences))

    def stop_choice(self, group_id: int, index: int) -> None:
        """End one choice, whose client needs no more tokens."""
        state = self._states.get(group_id)
        if state is not None and self._end([state.sequences[index]]):
            self._metrics.count_choice("stop")
            if state.is_finished:
                self._emit(state, [], time.time())

    def step(self) -> bool:
        """Compute one step. False if no sequence was due. Raises ``DeviceLost`` when no further step is possible."""
        started = self._clock()
        plan = self._scheduler.schedule(started)
        self._note_starts(plan.admitted)
        results = self._execute(plan.batch)
        outcomes = self._scheduler.apply(plan.batch, results)
        self._publish(outcomes)
        self._count_drafts(plan.batch, results)
        seconds = self._clock() - started
        if plan.batch and not any(isinstance(result, Exception) for result in results):
            self._scheduler.learn(plan, seconds)
        self._measure_step(plan, outcomes, seconds)
        return bool(plan.batch)

    def seconds_until_due(self) -> float | None:
        """Time until a sequence is due, after a step that found none; None: not before a new request."""
        due = self._scheduler.next_due()
        return None if due is None else max(0.0, due - self._clock())

    def take_outputs(self) -> list[RequestOutput]:
        """All outputs since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def failed(self, group_id: int, error: ServiceError) -> RequestOutput:
        """The last output of a request that ends with an error."""
        return RequestOutput(group_id, [], error=error)

    def _execute(self, batch: list[ScheduledSequence]) -> list[Sampled | Exception | None]:
        """One checked result for each entry of the batch; the same exception for all when the whole step failed."""
        if not batch:
            return []
        request_ids = (scheduled.sequence.request.request_id for scheduled in batch)
        return self._faults.guard(lambda: self._compute(batch), len(batch), request_ids)

    def _compute(self, batch: list[ScheduledSequence]) -> list[Sampled | Exception | None]:
        has_output = [scheduled.has_output for scheduled in batch]
        results = self._runner.execute(batch)
        if len(results) != sum(has_output):
            raise RuntimeError(f"{len(results)} results for {sum(has_output)} sequences")
        checked = map(self._checked, results)
        return [next(checked) if expected else None for expected in has_output]

    def _checked(self, result: Sampled | Exception) -> Sampled | Exception:
        if isinstance(result, Exception):
            return result
        vocab_size = self._runner.info.vocab_size
        for token_id in result.token_ids:
            if not 0 <= token_id < vocab_size:
                return ValueError(f"token id {token_id} is outside the vocabulary of {vocab_size}")
        return result

    def _note_starts(self, admitted: Iterable[Sequence]) -> None:
        for sequence in admitted:
            state = self._states[sequence.group_id]
            if not state.has_started:
                state.start(sequence, time.time())
                self._metrics.count_start(state)

    def _publish(self, outcomes: Iterable[Outcome]) -> None:
        choices: dict[int, list[ChoiceOutput]] = {}
        for sequence, output in outcomes:
            if isinstance(output, Exception):
                self._fail(sequence, output)
                continue
            choices.setdefault(sequence.group_id, []).append(output)
            if output.finish_reason is not None:
                self._runner.release(sequence)
                self._metrics.count_choice(output.finish_reason)
        now = time.time()
        for group_id, outputs in choices.items():
            if group_id in self._states:
                self._emit(self._states[group_id], outputs, now)

    def _emit(self, state: RequestState, choices: list[ChoiceOutput], now: float) -> None:
        output = state.output(choices, now)
        self._outputs.append(output)
        if output.is_last:
            del self._states[state.group_id]
            self._metrics.count_finish(state)

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        """End the request of a sequence with an error."""
        state = self._states.pop(sequence.group_id, None)
        if state is None:
            return
        num_choices, request_id = self._end(state.sequences), state.request.request_id
        if isinstance(error, InvalidRequest):  # a dead end of its constraint: the client's fault
            log.info("request refused", request_id=request_id, choice=sequence.index, reason=error.message)
            self._metrics.count_refusal(num_choices)
        else:
            log.error("request failed", request_id=request_id, choice=sequence.index, exc_info=error)
            self._metrics.count_failure(num_choices)
        self._outputs.append(self.failed(state.group_id, public(error)))

    def _end(self, sequences: Iterable[Sequence]) -> int:
        """Remove sequences from the scheduler and the runner; how many of them were unfinished."""
        unfinished = [sequence for sequence in sequences if sequence.status is not Status.FINISHED]
        for sequence in unfinished:
            self._scheduler.end(sequence)
            self._runner.release(sequence)
        return len(unfinished)

    def _count_drafts(self, batch: list[ScheduledSequence], results: list[Sampled | Exception | None]) -> None:
        for scheduled, result in zip(batch, results, strict=True):
            if scheduled.drafts:
                num_accepted = len(result.token_ids) - 1 if isinstance(result, Sampled) else 0
                self._metrics.count_draft(len(scheduled.drafts), num_accepted)

    def _measure_step(self, plan: Plan, outcomes: list[Outcome], seconds: float) -> None:
        self._loads = self._measure()
        if plan.batch:
            self._metrics.count_step(
                num_tokens=plan.num_tokens,
                num_generated=sum(len(output.token_ids) for _, output in outcomes if isinstance(output, ChoiceOutput)),
                num_preempted=len(plan.preempted),
                seconds=seconds,
            )

    def _measure(self) -> Loads:
        scheduler = self._scheduler
        return Loads(scheduler.num_running, scheduler.num_waiting, scheduler.num_free_blocks)
