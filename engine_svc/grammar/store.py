"""The memory of compiled constraints: how much all of them may take, and which are kept for requests to come."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final
from weakref import finalize

from engine_svc.constraint import Constraint
from engine_svc.grammar.matcher import CompiledGrammar, Room
from svclib.errors import InvalidRequest, Overloaded

MAX_KEPT: Final = 256


class GrammarStore:
    """Knows every compiled grammar that is alive. May be used from several threads.

    A grammar takes its room from before it is compiled until nothing refers to it: neither the store, which keeps the
    last used ones, nor a request.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[Constraint, CompiledGrammar] = OrderedDict()
        # Room is given back wherever the last reference goes, also in here.
        self._lock = threading.RLock()

    @property
    def num_bytes(self) -> int:
        """What all grammars take that are alive."""
        return self._num_bytes

    def get(self, constraint: Constraint) -> CompiledGrammar | None:
        with self._lock:
            if constraint in self._kept:
                self._kept.move_to_end(constraint)
            return self._kept.get(constraint)

    def keep(self, constraint: Constraint, grammar: CompiledGrammar) -> None:
        """Keep a grammar until others push it out."""
        with self._lock:
            self._kept[constraint] = grammar
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def room(self, constraint: Constraint, num_bytes: int) -> Room:
        """Room for a grammar and its text, given back when the last reference to it is gone.

        Raises ``InvalidRequest`` when it could never be found, ``Overloaded`` when requests hold it.
        """
        num_bytes += len(constraint.text) + sum(map(len, constraint.choices))
        if num_bytes > self._max_bytes:
            most = f"{self._max_bytes // 2**20} MiB of memory"
            raise InvalidRequest(f"the constraint is too complex: it takes more than {most}", param=constraint.kind)
        with self._lock:
            while self._num_bytes + num_bytes > self._max_bytes and self._kept:
                self._kept.popitem(last=False)
            if self._num_bytes + num_bytes > self._max_bytes:
                raise Overloaded("the constraints of running requests fill their memory", retry_after=1.0)
            self._num_bytes += num_bytes
        room = Room()
        finalize(room, self._give_back, num_bytes).atexit = False
        return room

    def _give_back(self, num_bytes: int) -> None:
        with self._lock:
            self._num_bytes -= num_bytes
