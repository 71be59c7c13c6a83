"""The embedding engine: requests in, one pass after another, vectors out.

Belongs to one thread, the embedding loop's (``loop.py``). A fault stays where it happened: a bad vector ends its
request, a failed pass the requests in it, and only a lost device, or one pass failing after another, ends the engine
with ``DeviceLost``.
"""

from __future__ import annotations

import time

import structlog

from engine_svc.embedding.interface import EmbedderInfo, EmbeddingRunner, Vector
from engine_svc.embedding.queue import EmbeddingQueue, Job, Turn
from engine_svc.engine import MAX_STEP_FAULTS
from engine_svc.execution.runner import DeviceLost
from engine_svc.metrics import EngineMetrics

log = structlog.get_logger(__name__)


class EmbeddingEngine:
    """Owns the requests. ``num_running`` is how many are in the pass that is being computed; readable by any thread."""

    def __init__(self, runner: EmbeddingRunner, metrics: EngineMetrics) -> None:
        self._runner = runner
        self._metrics = metrics
        self._queue = EmbeddingQueue(runner.info.max_num_batched_tokens)
        self._num_faults = 0
        self.num_running = 0

    @property
    def info(self) -> EmbedderInfo:
        return self._runner.info

    def add(self, job: Job) -> None:
        self._queue.add(job)

    def drop(self, job: Job) -> None:
        """End a request without a word; has no effect on one that is over."""
        if not job.is_over:
            job.give_up()
            self._queue.drop(job)
            self._metrics.count_abort(1)

    def step(self) -> bool:
        """Compute one pass. False if there was nothing to do. Raises ``DeviceLost`` when there will never be one."""
        started = time.monotonic()
        turns = self._queue.take()
        self.num_running = len({turn.job for turn in turns})
        if not turns:
            return False
        results = self._execute(turns)
        num_tokens = sum(len(turn.input.token_ids) for turn in turns)
        self._metrics.count_pass(num_tokens=num_tokens, seconds=time.monotonic() - started)
        for (job, _), result in zip(turns, results, strict=True):
            self._hand_over(job, result)
        return True

    def _execute(self, turns: list[Turn]) -> list[Vector | Exception]:
        """Results in step with the turns; the same exception for all when the pass failed as a whole."""
        try:
            results = self._runner.execute([turn.input for turn in turns])
        except DeviceLost:
            raise
        except Exception as error:
            self._note_fault(error)
            return [error] * len(turns)
        self._num_faults = 0
        return results

    def _note_fault(self, error: Exception) -> None:
        self._metrics.count_step_fault()
        self._num_faults += 1
        log.error("pass failed", faults_in_a_row=self._num_faults, exc_info=error)
        if self._num_faults >= MAX_STEP_FAULTS:
            raise DeviceLost(f"{self._num_faults} passes in a row failed") from error

    def _hand_over(self, job: Job, result: Vector | Exception) -> None:
        if job.is_over:
            return
        if not isinstance(result, Exception):
            if job.put(result):
                self._metrics.count_choice("stop")
            return
        log.error("request failed", request_id=job.request.request_id, exc_info=result)
        self._queue.drop(job)
        self._metrics.count_failure(1)
        job.fail(result)
