from __future__ import annotations

import pytest

from engine_svc.scheduling.waiting_queue import WaitingQueue
from tests.engine_svc import given


def test_first_come_first_served() -> None:
    queue, sequences = WaitingQueue(), [given.sequence() for _ in range(3)]
    for sequence in sequences:
        queue.push(sequence)
    assert list(queue) == sequences


def test_who_lost_a_place_is_first() -> None:
    queue, (old, new, preempted) = WaitingQueue(), [given.sequence() for _ in range(3)]
    queue.push(old)
    queue.push(new)
    queue.push_front(preempted)
    assert list(queue) == [preempted, old, new]


def test_anyone_can_leave_once() -> None:
    queue, (one, two, three) = WaitingQueue(), [given.sequence() for _ in range(3)]
    for sequence in (one, two, three):
        queue.push(sequence)
    queue.remove(two)
    assert (list(queue), len(queue)) == ([one, three], 2)
    with pytest.raises(KeyError):
        queue.remove(two)
