from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.embedding.interface import Vector
from engine_svc.embedding.queue import EmbeddingQueue, Job
from svclib.errors import InternalError, ServiceError, Unavailable
from tests.engine_svc.embedding.fakes import request, vector_of

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=6)


class Recorded:
    """A request that records its outcomes."""

    def __init__(self, *texts: tuple[int, ...]) -> None:
        self.outcomes: list[list[Vector] | ServiceError] = []
        self.job = Job(request(*texts), self.outcomes.append)

    @property
    def vectors(self) -> list[list[float]]:
        (outcome,) = self.outcomes
        assert isinstance(outcome, list)
        return [vector.tolist() for vector in outcome]


@given(st.lists(LENGTHS, max_size=5), st.integers(1, 20))
def test_requests_get_their_vectors_in_order(wanted: list[list[int]], budget: int) -> None:
    recorded = [Recorded(*((number + 1,) * length for length in lengths)) for number, lengths in enumerate(wanted)]
    queue = EmbeddingQueue(budget)
    for each in recorded:
        queue.add(each.job)

    while scheduled := queue.next_pass():
        assert sum(len(item.input.token_ids) for item in scheduled) <= budget or len(scheduled) == 1
        for item in scheduled:
            item.job.put(vector_of(item.input.token_ids))

    for number, (each, lengths) in enumerate(zip(recorded, wanted, strict=True)):
        assert each.vectors == [[(number + 1) * length, length] for length in lengths]
        assert each.job.is_finished


def test_a_short_request_shares_passes_with_a_long_one() -> None:
    long, short = Recorded(*[(1,) * 5] * 10), Recorded((2,))
    queue = EmbeddingQueue(10)
    queue.add(long.job)
    queue.add(short.job)

    assert [item.job for item in queue.next_pass()] == [long.job, short.job]


def test_a_text_beyond_the_budget_is_first_in_the_next_pass() -> None:
    first, second = Recorded((1,) * 6), Recorded((2,) * 30, (3,))
    queue = EmbeddingQueue(10)
    queue.add(first.job)
    queue.add(second.job)

    passes = [[len(item.input.token_ids) for item in queue.next_pass()] for _ in range(4)]

    assert passes == [[6], [30], [1], []]


def test_a_removed_request_is_not_scheduled() -> None:
    removed, stays = Recorded((1,), (1,)), Recorded((2,))
    queue = EmbeddingQueue(10)
    queue.add(removed.job)
    queue.add(stays.job)

    queue.remove(removed.job)
    queue.remove(removed.job)

    assert [item.job for item in queue.next_pass()] == [stays.job]
    assert queue.next_pass() == []


def test_only_service_errors_keep_their_message() -> None:
    internal, public = Recorded((1,)), Recorded((1,))

    internal.job.fail(RuntimeError("secret"))
    public.job.fail(Unavailable("come back"))

    assert [type(outcome) for outcome in internal.outcomes] == [InternalError]
    assert [str(outcome) for outcome in public.outcomes] == ["come back"]


def test_a_cancelled_request_has_no_outcome() -> None:
    recorded = Recorded((1,))

    recorded.job.cancel()

    assert recorded.job.is_finished
    assert recorded.outcomes == []


def test_a_request_ends_with_its_last_vector() -> None:
    recorded = Recorded((1,), (2,))

    assert not recorded.job.put(np.zeros(2, np.float32))
    assert recorded.job.put(np.ones(2, np.float32))
    assert recorded.vectors == [[0, 0], [1, 1]]
