"""The embedding engine: takes requests, computes one pass after another, returns vectors.

It is used by one thread, that of the step loop (``step_loop.py``); a pass is a step. Faults are isolated: a vector that
is not finite ends its request, a failed pass ends the requests in it, and only a lost device, or several failed passes
in a row, end the engine with ``DeviceLost``.
"""

from __future__ import annotations

import time
from functools import partial

import structlog

from engine_svc.embedding.interface import EmbeddingOutput, EmbeddingRequest, EmbeddingRunner, Vector
from engine_svc.embedding.queue import EmbeddingQueue, Job, ScheduledText
from engine_svc.metrics import EngineMetrics
from engine_svc.output import Loads
from engine_svc.step_engine import StepFaults
from svclib.errors import ServiceError

log = structlog.get_logger(__name__)


class EmbeddingEngine:
    """Owns the requests. See ``engine_svc.step_engine.StepEngine``."""

    def __init__(self, runner: EmbeddingRunner, metrics: EngineMetrics) -> None:
        self._runner = runner
        self._metrics = metrics
        self._queue = EmbeddingQueue(runner.info.max_num_batched_tokens)
        self._jobs: dict[int, Job] = {}
        self._outputs: list[EmbeddingOutput] = []
        self._faults = StepFaults(metrics, "pass failed")
        self._num_running = 0

    @property
    def loads(self) -> Loads:
        """Requests in the current pass (running), and all others (waiting). May be read from any thread."""
        return Loads(self._num_running, max(0, len(self._jobs) - self._num_running), 0)

    def add(self, group_id: int, request: EmbeddingRequest) -> None:
        job = self._jobs[group_id] = Job(request, partial(self._end, group_id))
        self._queue.add(job)

    def abort(self, group_id: int) -> None:
        job = self._jobs.pop(group_id, None)
        if job is not None:
            job.cancel()
            self._queue.remove(job)
            self._metrics.count_abort(1)

    def step(self) -> bool:
        started = time.monotonic()
        scheduled = self._queue.next_pass()
        self._num_running = len({item.job for item in scheduled})
        if not scheduled:
            return False
        results = self._execute(scheduled)
        num_tokens = sum(len(item.input.token_ids) for item in scheduled)
        self._metrics.count_pass(num_tokens=num_tokens, seconds=time.monotonic() - started)
        for (job, _), result in zip(scheduled, results, strict=True):
            self._deliver(job, result)
        return True

    def take_outputs(self) -> list[EmbeddingOutput]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def seconds_until_due(self) -> None:
        """None: texts are due immediately."""

    def failed(self, group_id: int, error: ServiceError) -> EmbeddingOutput:
        return EmbeddingOutput(group_id, error)

    def _execute(self, scheduled: list[ScheduledText]) -> list[Vector | Exception]:
        """One result per scheduled text; the same exception for all if the whole pass failed."""
        inputs = [item.input for item in scheduled]
        request_ids = (item.job.request.request_id for item in scheduled)
        return self._faults.guard(lambda: self._runner.execute(inputs), len(scheduled), request_ids)

    def _deliver(self, job: Job, result: Vector | Exception) -> None:
        if job.is_finished:
            return
        if not isinstance(result, Exception):
            if job.put(result):
                self._metrics.count_choice("stop")
            return
        log.error("request failed", request_id=job.request.request_id, exc_info=result)
        self._queue.remove(job)
        self._metrics.count_failure(1)
        job.fail(result)

    def _end(self, group_id: int, outcome: list[Vector] | ServiceError) -> None:
        del self._jobs[group_id]
        self._outputs.append(EmbeddingOutput(group_id, outcome))
