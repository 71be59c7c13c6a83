from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given as given_that
from hypothesis import strategies as st

from engine_svc.scheduling.sequence import Sequence, choices_of
from engine_svc.scheduling.waiting_queue import WaitingQueue
from tests.engine_svc import given


def queue_of(*counts: int) -> tuple[WaitingQueue, list[tuple[Sequence, ...]]]:
    """A queue with requests of so many choices, the oldest first."""
    queue, requests, first_id = WaitingQueue(), [], 0
    for count in counts:
        requests.append(choices_of(given.request(n=count), first_id))
        first_id += count
        for sequence in requests[-1]:
            queue.push(sequence)
    return queue, requests


def start(queue: WaitingQueue, count: int) -> list[Sequence]:
    """Start this many sequences."""
    started: list[Sequence] = []
    for sequence in queue.turns():
        if len(started) == count:
            break
        queue.remove(sequence)
        queue.note_start(sequence)
        started.append(sequence)
        queue.check_integrity(started)
    return started


def test_first_come_first_served() -> None:
    queue, sequences = WaitingQueue(), [given.sequence() for _ in range(3)]
    for sequence in sequences:
        queue.push(sequence)
    assert list(queue) == sequences
    assert start(queue, 3) == sequences


def test_choices_of_requests_take_turns() -> None:
    queue, (many, two, one) = queue_of(4, 2, 1)
    assert start(queue, 7) == [many[0], two[0], one[0], many[1], two[1], many[2], many[3]]


def test_a_new_request_comes_before_further_choices_of_others() -> None:
    queue, (many,) = queue_of(100)
    assert start(queue, 50) == list(many[:50])
    newcomer = given.sequence()
    queue.push(newcomer)
    assert next(queue.turns()) is newcomer


def test_new_requests_never_delay_a_request_without_running_choices() -> None:
    queue, (many,) = queue_of(3)
    for _ in range(3):
        queue.push(given.sequence())
        first = next(queue.turns())
        assert first in many
        queue.remove(first)
        queue.note_start(first)
        queue.note_stop(first)


def test_preempted_sequences_wait_in_order_of_age() -> None:
    queue, (old, new) = queue_of(3, 1)
    started = start(queue, 3)
    assert started == [old[0], new[0], old[1]]
    for lost in (new[0], old[1]):
        queue.note_stop(lost)
        queue.push(lost)
    assert list(queue) == [new[0], old[1], old[2]]


def test_a_skipped_request_comes_back_in_the_next_round() -> None:
    queue, (first, second) = queue_of(2, 2)
    seen = []
    for sequence in queue.turns():
        seen.append(sequence)
        if sequence in second:
            queue.remove(sequence)
            queue.note_start(sequence)
    assert seen == [first[0], second[0], second[1]]
    assert next(queue.turns()) is first[0]


def test_any_sequence_can_be_removed_once() -> None:
    queue, (one, two, three) = WaitingQueue(), [given.sequence() for _ in range(3)]
    for sequence in (one, two, three):
        queue.push(sequence)
    queue.remove(two)
    assert (list(queue), len(queue)) == ([one, three], 2)
    with pytest.raises(KeyError):
        queue.remove(two)


def test_a_choice_can_be_removed_once() -> None:
    queue, (choices,) = queue_of(3)
    queue.remove(choices[1])
    assert list(queue) == [choices[0], choices[2]]
    with pytest.raises(KeyError):
        queue.remove(choices[1])


@given_that(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 60))
def test_running_choices_are_distributed_evenly(counts: list[int], num_places: int) -> None:
    """No request starts another choice before every other waiting request has as many running."""
    queue, requests = queue_of(*counts)
    running = Counter(sequence.group_id for sequence in start(queue, num_places))
    waiting = {sequence.group_id for sequence in queue}
    for request in requests:
        if (group_id := request[0].group_id) in waiting:
            assert all(count <= running[group_id] + 1 for count in running.values())
