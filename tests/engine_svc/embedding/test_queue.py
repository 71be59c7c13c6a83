from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.embedding.interface import Vector
from engine_svc.embedding.queue import EmbeddingQueue, Job
from svclib.errors import InternalError, ServiceError, Unavailable
from tests.engine_svc.embedding.fakes import request, vector_of

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=6)


class Heard:
    """A request and how it ended."""

    def __init__(self, *texts: tuple[int, ...]) -> None:
        self.outcomes: list[list[Vector] | ServiceError] = []
        self.job = Job(request(*texts), self.outcomes.append)

    @property
    def vectors(self) -> list[list[float]]:
        (outcome,) = self.outcomes
        assert isinstance(outcome, list)
        return [vector.tolist() for vector in outcome]


@given(st.lists(LENGTHS, max_size=5), st.integers(1, 20))
def test_everyone_gets_their_vectors_in_order(wanted: list[list[int]], most: int) -> None:
    heard = [Heard(*((number + 1,) * length for length in lengths)) for number, lengths in enumerate(wanted)]
    queue = EmbeddingQueue(most)
    for each in heard:
        queue.add(each.job)

    while scheduled := queue.next_pass():
        assert sum(len(item.input.token_ids) for item in scheduled) <= most or len(scheduled) == 1
        for item in scheduled:
            item.job.put(vector_of(item.input.token_ids))

    for number, (each, lengths) in enumerate(zip(heard, wanted, strict=True)):
        assert each.vectors == [[(number + 1) * length, length] for length in lengths]
        assert each.job.is_finished


def test_a_short_request_does_not_wait_for_the_end_of_a_long_one() -> None:
    long, short = Heard(*[(1,) * 5] * 10), Heard((2,))
    queue = EmbeddingQueue(10)
    queue.add(long.job)
    queue.add(short.job)

    assert [item.job for item in queue.next_pass()] == [long.job, short.job]


def test_a_text_that_does_not_fit_beside_others_is_first_in_the_next_pass() -> None:
    first, second = Heard((1,) * 6), Heard((2,) * 30, (3,))
    queue = EmbeddingQueue(10)
    queue.add(first.job)
    queue.add(second.job)

    passes = [[len(item.input.token_ids) for item in queue.next_pass()] for _ in range(4)]

    assert passes == [[6], [30], [1], []]


def test_who_was_dropped_gets_no_turn() -> None:
    gone, stays = Heard((1,), (1,)), Heard((2,))
    queue = EmbeddingQueue(10)
    queue.add(gone.job)
    queue.add(stays.job)

    queue.remove(gone.job)
    queue.remove(gone.job)

    assert [item.job for item in queue.next_pass()] == [stays.job]
    assert queue.next_pass() == []


def test_a_fault_is_told_once_and_only_a_service_error_keeps_its_words() -> None:
    hidden, said = Heard((1,)), Heard((1,))

    hidden.job.fail(RuntimeError("secret"))
    said.job.fail(Unavailable("come back"))

    assert [type(outcome) for outcome in hidden.outcomes] == [InternalError]
    assert [str(outcome) for outcome in said.outcomes] == ["come back"]


def test_who_was_given_up_is_told_nothing() -> None:
    heard = Heard((1,))

    heard.job.cancel()

    assert heard.job.is_finished
    assert heard.outcomes == []


def test_a_request_is_over_with_its_last_vector() -> None:
    heard = Heard((1,), (2,))

    assert not heard.job.put(np.zeros(2, np.float32))
    assert heard.job.put(np.ones(2, np.float32))
    assert heard.vectors == [[0, 0], [1, 1]]
