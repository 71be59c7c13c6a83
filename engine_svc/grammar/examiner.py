"""Tries constraints in child processes, which are killed when one takes too long, or more memory than it may.

llguidance bounds the work of a mask, but not that of reading a schema: a kB of patterns can keep it busy for ever, and
a thread cannot be ended. What a child has compiled in time takes this process about as long.
"""

from __future__ import annotations

import json
import tempfile
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from weakref import finalize

from engine_svc.constraint import Constraint
from engine_svc.grammar.panics import Panic
from engine_svc.grammar.token_bytes import TokenBytes
from engine_svc.grammar.vocabulary import write_tokens
from svclib.child_process import ChildDied, ChildNotStarted, ChildPool, ChildTimeout
from svclib.errors import InvalidRequest, Unavailable

NUM_CHILDREN: Final = 3
"""One for what is quick, two for what takes long; each takes 75 MB with 49,152 tokens."""


SLOW_NICENESS: Final = 5
"""For what takes long, so that steps and other constraints do not."""


@dataclass(frozen=True, slots=True)
class Approved:
    """A constraint that compiles: the text of its grammar, that of the grammar of its numbers (empty: it has none),
    and the bytes that both take once they are compiled."""

    grammar: str = field(repr=False)
    numbers: str = field(repr=False)
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ProbePolicy:
    """How long a child is left at one constraint, on the clock and in processor time, and how much others come first:
    not at all, or by ``SLOW_NICENESS``."""

    seconds: float
    cpu_seconds: float
    niceness: int = 0


class TooMuch(Exception):
    """The child was ended: the constraint takes more time than it was given, or more memory than any may."""


class Examiner:
    """Children over one vocabulary; they start when they are first needed. May be used from several threads."""

    def __init__(self, tokens: TokenBytes, *, memory_bytes: int) -> None:
        self._tokens = tokens
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._pool: ChildPool | None = None
        self._is_closed = False

    def start(self) -> None:
        """Start the children, without waiting until they are ready. Raises ``Unavailable`` once closed."""
        with self._lock:
            if self._is_closed:
                raise Unavailable("the engine ends")
            self._pool = self._pool or self._new_pool()

    def examine(self, constraint: Constraint, patience: ProbePolicy) -> Approved:
        """Raises ``InvalidRequest`` for what is wrong with it, ``TooMuch``, ``Unavailable`` when there are no
        children, and ``Panic``."""
        self.start()
        answer = json.loads(self._ask(constraint, patience))
        if "message" in answer:
            raise InvalidRequest(answer["message"], param=answer["param"])
        if "panic" in answer:
            raise Panic(answer["panic"])
        return Approved(**answer)

    def close(self) -> None:
        """Kill the children, and start no others."""
        with self._lock:
            self._is_closed = True
            if self._pool is not None:
                self._pool.close()

    def _ask(self, constraint: Constraint, patience: ProbePolicy) -> bytes:
        assert self._pool is not None
        asked = {**asdict(constraint), "cpu_seconds": patience.cpu_seconds, "niceness": patience.niceness}
        try:
            return self._pool.call(json.dumps(asked).encode(), patience.seconds)
        except ChildTimeout:
            raise TooMuch from None
        except ChildDied as error:
            if self._is_closed or isinstance(error, ChildNotStarted):
                raise Unavailable("constraints cannot be compiled now", retry_after=1.0) from error
            raise TooMuch from None

    def _new_pool(self) -> ChildPool:
        folder = tempfile.TemporaryDirectory(prefix="pellucid-")
        tokens = Path(folder.name) / "tokens.json"
        write_tokens(self._tokens, tokens)
        pool = ChildPool(NUM_CHILDREN, "engine_svc.grammar.child", (str(tokens), str(self._memory_bytes)))
        finalize(self, _release, pool, folder)
        return pool


def _release(pool: ChildPool, folder: tempfile.TemporaryDirectory[str]) -> None:
    pool.close()
    folder.cleanup()
