"""The order of waiting sequences: those of the request with the fewest running choices first.

Among requests with equally many running choices the oldest is first, and within a request its first choice. So a
request with a hundred choices and one with a single choice take turns, and a request without a running choice comes
before every younger one. A preempted sequence waits with the others of its request.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import TypeAlias

from engine_svc.scheduling.sequence import Sequence

_Turn: TypeAlias = tuple[int, int]
"""Of a request: the number of its running choices, and its group id, which orders by age."""

_by_age = attrgetter("seq_id")


class WaitingQueue:
    """Waiting sequences by request, with the number of running choices of each request.

    Moving a sequence shifts the list of waiting requests, or of the request's waiting choices, both short.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[Sequence]] = {}
        self._num_running: Counter[int] = Counter()
        self._turns: list[_Turn] = []
        self._num_waiting = 0

    @property
    def num_requests_running(self) -> int:
        """Requests with a running choice."""
        return len(self._num_running)

    @property
    def num_requests_to_start(self) -> int:
        """Waiting requests without a running choice."""
        return bisect_left(self._turns, (1, 0))

    def num_running(self, sequence: Sequence) -> int:
        """Number of running choices of the sequence's request."""
        return self._num_running[sequence.group_id]

    def push(self, sequence: Sequence) -> None:
        """Add a new sequence, or a preempted one."""
        group_id = sequence.group_id
        if group_id not in self._waiting:
            self._waiting[group_id] = []
            insort(self._turns, self._turn(group_id))
        insort(self._waiting[group_id], sequence, key=_by_age)
        self._num_waiting += 1

    def remove(self, sequence: Sequence) -> None:
        """Raises ``KeyError`` if it is not waiting."""
        choices = self._waiting[sequence.group_id]
        index = bisect_left(choices, sequence.seq_id, key=_by_age)
        if index == len(choices) or choices[index] is not sequence:
            raise KeyError(sequence.seq_id)
        del choices[index]
        self._num_waiting -= 1
        if not choices:
            del self._waiting[sequence.group_id]
            self._drop_turn(sequence.group_id)

    def note_start(self, sequence: Sequence) -> None:
        """The sequence runs now; it must not be waiting any more."""
        self._count(sequence.group_id, 1)

    def note_stop(self, sequence: Sequence) -> None:
        """The sequence no longer runs."""
        self._count(sequence.group_id, -1)

    def turns(self) -> Iterator[Sequence]:
        """Yields the next sequence to start, repeatedly.

        Before the next one, the caller may ``remove`` and start the yielded sequence; if it does not, its request is
        skipped. Nothing else may change meanwhile.
        """
        num_skipped = 0
        while num_skipped < len(self._turns):
            turn = self._turns[num_skipped]
            yield self._waiting[turn[1]][0]
            # A request with one more running choice has moved back, or is gone.
            if num_skipped < len(self._turns) and self._turns[num_skipped] == turn:
                num_skipped += 1

    def __iter__(self) -> Iterator[Sequence]:
        """All waiting sequences, in the current order of requests."""
        return (sequence for _, group_id in self._turns for sequence in self._waiting[group_id])

    def __len__(self) -> int:
        return self._num_waiting

    def check_integrity(self, running: list[Sequence]) -> None:
        """Assert that the order is right, given all running sequences."""
        assert self._num_running == Counter(sequence.group_id for sequence in running), "running choices"
        assert self._turns == sorted(map(self._turn, self._waiting)), "waiting requests out of order"
        assert all(choices == sorted(choices, key=_by_age) for choices in self._waiting.values())
        assert self._num_waiting == sum(map(len, self._waiting.values()))

    def _turn(self, group_id: int) -> _Turn:
        return self._num_running[group_id], group_id

    def _count(self, group_id: int, change: int) -> None:
        is_waiting = group_id in self._waiting
        if is_waiting:
            self._drop_turn(group_id)
        self._num_running[group_id] += change
        if is_waiting:
            insort(self._turns, self._turn(group_id))
        if not self._num_running[group_id]:
            del self._num_running[group_id]

    def _drop_turn(self, group_id: int) -> None:
        del self._turns[bisect_left(self._turns, self._turn(group_id))]
