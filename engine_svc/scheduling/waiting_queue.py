"""The order in which waiting sequences get their turn: those of the request that has the fewest running ones first.

Among requests with as many running choices the oldest is first, and inside of a request its first choice. So a request
with a hundred choices and one with a single choice take turns, and a request of which nothing runs comes before every
younger one. A preempted sequence waits with the others of its request.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import TypeAlias

from engine_svc.scheduling.sequence import Sequence

_Turn: TypeAlias = tuple[int, int]
"""Of a request: how many of its choices run, and its group id, which is its age."""

_by_age = attrgetter("seq_id")


class WaitingQueue:
    """Waiting sequences, by request; knows for each request how many of its choices run.

    Moving a sequence takes a shift of the list of waiting requests, or of the request's waiting choices, both short.
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

    def num_running(self, sequence: Sequence) -> int:
        """How many choices of the sequence's request run."""
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
        """Raises ``KeyError`` if it is not here."""
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
        """A choice of a request runs, which this one waited for or not."""
        self._count(sequence.group_id, 1)

    def note_stop(self, sequence: Sequence) -> None:
        """It runs no more."""
        self._count(sequence.group_id, -1)

    def turns(self) -> Iterator[Sequence]:
        """Whose turn it is, again and again.

        Before it goes on, the caller may ``remove`` and start that sequence; if it does not, the sequence's request is
        passed over. Nothing else may be changed meanwhile.
        """
        num_passed = 0
        while num_passed < len(self._turns):
            turn = self._turns[num_passed]
            yield self._waiting[turn[1]][0]
            # A request of which one more runs is further behind now, or gone.
            if num_passed < len(self._turns) and self._turns[num_passed] == turn:
                num_passed += 1

    def __iter__(self) -> Iterator[Sequence]:
        """All, requests in the order of their turns now."""
        return (sequence for _, group_id in self._turns for sequence in self._waiting[group_id])

    def __len__(self) -> int:
        return self._num_waiting

    def check_integrity(self, running: list[Sequence]) -> None:
        """Assert that the order is right, given everybody who runs."""
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
