"""The order in which waiting sequences get their turn: first come, first served."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from engine_svc.scheduling.sequence import Sequence


class WaitingQueue:
    """Sequences that wait for a place. Iterates in the order of their turns; all else takes constant time."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[int, Sequence] = OrderedDict()

    def push(self, sequence: Sequence) -> None:
        """A newcomer: after everybody else."""
        self._sequences[sequence.seq_id] = sequence

    def push_front(self, sequence: Sequence) -> None:
        """One that had a place and lost it: before everybody else."""
        self._sequences[sequence.seq_id] = sequence
        self._sequences.move_to_end(sequence.seq_id, last=False)

    def remove(self, sequence: Sequence) -> None:
        """Raises ``KeyError`` if it is not here."""
        del self._sequences[sequence.seq_id]

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences.values())

    def __len__(self) -> int:
        return len(self._sequences)
