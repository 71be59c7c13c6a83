"""Which texts the next pass computes. Knows neither threads nor torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from engine_svc.embedding.interface import EmbeddingInput, EmbeddingRequest, Vector
from svclib.errors import ServiceError, public

Listener = Callable[[list[Vector] | ServiceError], None]
"""Called once with how a request ended: all its vectors, or an error."""


class Job:
    """A request while it is computed."""

    def __init__(self, request: EmbeddingRequest, listener: Listener) -> None:
        self.request = request
        self._listener = listener
        self._vectors: list[Vector] = []
        self._num_taken = 0
        self.is_finished = False

    @property
    def has_next(self) -> bool:
        """Whether there is a text that has not had its item."""
        return self._num_taken < len(self.request.inputs)

    @property
    def next_length(self) -> int:
        """Tokens of the text whose item is next."""
        return len(self.request.inputs[self._num_taken])

    def take(self) -> EmbeddingInput:
        """The next text."""
        text = self.request.inputs[self._num_taken]
        self._num_taken += 1
        return EmbeddingInput(text, self.request.params)

    def put(self, vector: Vector) -> bool:
        """The vector of a text, in the order in which they were taken. Whether it was the last."""
        self._vectors.append(vector)
        if len(self._vectors) == len(self.request.inputs):
            self._end(self._vectors)
        return self.is_finished

    def fail(self, error: Exception) -> None:
        """End it with an error."""
        self._end(public(error))

    def cancel(self) -> None:
        """End it without a word."""
        self.is_finished = True

    def _end(self, outcome: list[Vector] | ServiceError) -> None:
        assert not self.is_finished
        self.is_finished = True
        self._listener(outcome)


class ScheduledText(NamedTuple):
    """A text in a pass, and whose it is."""

    job: Job
    input: EmbeddingInput


class EmbeddingQueue:
    """Requests take scheduled text by text, so that a short one need not wait for the end of a long one."""

    def __init__(self, max_num_batched_tokens: int) -> None:
        self._max_num_tokens = max_num_batched_tokens
        self._jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    def drop(self, job: Job) -> None:
        """Forget a request that has texts left; has no effect on any other."""
        if job in self._jobs:
            self._jobs.remove(job)

    def take(self) -> list[ScheduledText]:
        """The next pass: texts up to the limit of tokens, or a single longer one. Nothing if nobody waits."""
        scheduled: list[ScheduledText] = []
        num_tokens = 0
        while self._jobs:
            num_tokens += self._jobs[0].next_length
            if scheduled and num_tokens > self._max_num_tokens:
                break
            job = self._jobs.popleft()
            scheduled.append(ScheduledText(job, job.take()))
            if job.has_next:
                self._jobs.append(job)
        return scheduled
