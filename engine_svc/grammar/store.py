"""The memory of compiled constraints: its limit, and an LRU cache for later requests."""

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
    """Accounts for every compiled grammar that is alive. May be used from several threads.

    A grammar's room is reserved before it is compiled, and released when neither the cache nor a request refers to it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[Constraint, CompiledGrammar] = OrderedDict()
        # Reentrant: dropping a grammar while the lock is held may release its room.
        self._lock = threading.RLock()

    @property
    def num_bytes(self) -> int:
        """Of all grammars that are alive."""
        return self._num_bytes

    def get(self, constraint: Constraint) -> CompiledGrammar | None:
        with self._lock:
            if constraint in self._kept:
                self._kept.move_to_end(constraint)
            return self._kept.get(constraint)

    def keep(self, constraint: Constraint, grammar: CompiledGrammar) -> None:
        """Cache a grammar until it is evicted."""
        with self._lock:
            self._kept[constraint] = grammar
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def room(self, constraint: Constraint, num_bytes: int) -> Room:
        """Reserve room for a grammar and its text; it is released when the last reference to it is gone.

        Raises ``InvalidRequest`` when the grammar can never fit, ``Overloaded`` when running requests hold the memory.
        """
        num_bytes += len(constraint.text) + sum(map(len, constraint.choices))
        if num_bytes > self._max_bytes:
            most = f"{self._max_bytes // 2**20} MiB of memory"
            raise InvalidRequest(f"the constraint is too complex: it takes more than {most}", param=constraint.kind)
        with self._lock:
            while self._num_bytes + num_bytes > self._max_bytes and self._kept:
                self._kept.popitem(last=False)
            if self._num_bytes + num_bytes > self._max_bytes:
                raise Overloaded("the constraints of running requests take all memory for constraints", retry_after=1.0)
            self._num_bytes += num_bytes
        room = Room()
        finalize(room, self._release, num_bytes).atexit = False
        return room

    def _release(self, num_bytes: int) -> None:
        with self._lock:
            self._num_bytes -= num_bytes
