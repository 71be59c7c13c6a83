"""Schedules texts to passes. Independent of threads and torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from engine_svc.embedding.interface import EmbeddingInput, EmbeddingRequest, Vector
from svclib.errors import ServiceError, public

Listener = Callable[[list[Vector] | ServiceError], None]
"""Called once with the outcome of a request: all its vectors, or an error."""


class Job:
    """A request in the queue or in computation."""

    def __init__(self, request: EmbeddingRequest, listener: Listener) -> None:
        self.request = request
        self._listener = listener
        self._vectors: list[Vector] = []
        self._num_taken = 0
        self.is_finished = False

    @property
    def has_next(self) -> bool:
        """Whether there are texts that are not scheduled yet."""
        return self._num_taken < len(self.request.inputs)

    @property
    def next_length(self) -> int:
        """Tokens of the next text."""
        return len(self.request.inputs[self._num_taken])

    def take(self) -> EmbeddingInput:
        """Remove and return the next text."""
        text = self.request.inputs[self._num_taken]
        self._num_taken += 1
        return EmbeddingInput(text, self.request.params)

    def put(self, vector: Vector) -> bool:
        """Add the vector of a text, in the order of ``take``. Returns whether it was the last."""
        self._vectors.append(vector)
        if len(self._vectors) == len(self.request.inputs):
            self._end(self._vectors)
        return self.is_finished

    def fail(self, error: Exception) -> None:
        """End the request with an error."""
        self._end(public(error))

    def cancel(self) -> None:
        """End the request without calling the listener."""
        self.is_finished = True

    def _end(self, outcome: list[Vector] | ServiceError) -> None:
        assert not self.is_finished
        self.is_finished = True
        self._listener(outcome)


class ScheduledText(NamedTuple):
    """A text in a pass, and its request."""

    job: Job
    input: EmbeddingInput


class EmbeddingQueue:
    """Round-robin over requests, text by text, so that a short request does not wait for the end of a long one."""

    def __init__(self, max_num_batched_tokens: int) -> None:
        self._max_num_tokens = max_num_batched_tokens
        self._jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    def remove(self, job: Job) -> None:
        """Remove a request; no effect if all its texts are scheduled already."""
        if job in self._jobs:
            self._jobs.remove(job)

    def next_pass(self) -> list[ScheduledText]:
        """The texts of the next pass, up to the token budget, or a single longer one. Empty if no text is waiting."""
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
