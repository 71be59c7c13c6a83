"""Tries constraints in child processes, which are ended when one takes too much time or memory.

llguidance bounds the work of a mask, but not that of reading a schema: 1 kB of patterns can keep it busy for ever, and
a thread cannot be ended. What a child has compiled in time takes this process about as long.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from weakref import finalize

from engine_svc.constraint import Constraint
from engine_svc.grammar.panics import Panic
from engine_svc.grammar.token_bytes import TokenBytes
from engine_svc.grammar.vocabulary import write_tokens
from svclib.child_process import ChildDied, ChildNotStarted, ChildTimeout
from svclib.errors import InvalidRequest, Unavailable
from svclib.fork_server import ForkServer


@dataclass(frozen=True, slots=True)
class Approved:
    """A constraint that compiles: the text of its grammar, that of the grammar of its numbers (empty: it has none),
    the bytes that both take once they are compiled, and the CPU time that this took."""

    grammar: str = field(repr=False)
    numbers: str = field(repr=False)
    num_bytes: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Time of one trial: ``seconds`` on the clock and ``cpu_seconds``."""

    seconds: float
    cpu_seconds: float


class TooMuch(Exception):
    """The constraint takes more CPU time or memory than is allowed."""


class TimedOut(Exception):
    """The time on the clock is over; with more of the CPU the constraint might have compiled."""


class Stopped(Exception):
    """``Trial.stop`` was called."""


class Trial:
    """A trial as others see it. May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self._began_at: float | None = None
        self.is_stopped = False

    def seconds(self) -> float:
        """On the clock, since it began."""
        return 0.0 if self._began_at is None else time.monotonic() - self._began_at

    def stop(self) -> None:
        """End it now, or as soon as it begins."""
        with self._lock:
            self.is_stopped = True
            if self._end is not None:
                self._end()

    @contextmanager
    def running(self, end: Callable[[], None]) -> Iterator[None]:
        """While the block runs, ``stop`` calls ``end``. Raises ``Stopped`` if it was called before."""
        with self._lock:
            if self.is_stopped:
                raise Stopped
            self._began_at, self._end = time.monotonic(), end
        try:
            yield
        finally:
            with self._lock:
                self._end = None


class Examiner:
    """Trials over one vocabulary; the server of the child processes starts at the first. May be used from several
    threads."""

    def __init__(self, tokens: TokenBytes, *, memory_bytes: int) -> None:
        self._tokens = tokens
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._server: ForkServer | None = None
        self._is_closed = False

    def start(self) -> None:
        """Start the server, without waiting until it is ready. Raises ``Unavailable`` once closed."""
        with self._lock:
            if self._is_closed:
                raise Unavailable("the engine is stopping")
            self._server = self._server or self._new_server()

    def examine(self, constraint: Constraint, limits: TrialLimits, trial: Trial | None = None) -> Approved:
        """Raises ``InvalidRequest`` for a wrong constraint, ``TooMuch``, ``TimedOut``, ``Stopped``, ``Panic``, and
        ``Unavailable`` when no child process starts."""
        self.start()
        answer = json.loads(self._ask(constraint, limits, trial or Trial()))
        if "message" in answer:
            raise InvalidRequest(answer["message"], param=answer["param"])
        if "panic" in answer:
            raise Panic(answer["panic"])
        return Approved(**answer)

    def close(self) -> None:
        """Kill the child processes, and start no others."""
        with self._lock:
            self._is_closed = True
            if self._server is not None:
                self._server.close()

    def _ask(self, constraint: Constraint, limits: TrialLimits, trial: Trial) -> bytes:
        assert self._server is not None
        asked = json.dumps({**asdict(constraint), "cpu_seconds": limits.cpu_seconds}).encode()
        try:
            with self._server.forked() as child, trial.running(child.stop):
                return child.answer(asked, limits.seconds)
        except ChildTimeout:
            raise TimedOut from None
        except ChildDied as error:
            if self._is_closed or isinstance(error, ChildNotStarted):
                message = "constraints cannot be compiled: no child process started"
                raise Unavailable(message, retry_after=1.0) from error
            if trial.is_stopped:
                raise Stopped from None
            raise TooMuch from None

    def _new_server(self) -> ForkServer:
        folder = tempfile.TemporaryDirectory(prefix="pellucid-")
        tokens = Path(folder.name) / "tokens.json"
        write_tokens(self._tokens, tokens)
        server = ForkServer("engine_svc.grammar.child", (str(tokens), str(self._memory_bytes)))
        finalize(self, _release, server, folder)
        return server


def _release(server: ForkServer, folder: tempfile.TemporaryDirectory[str]) -> None:
    server.close()
    folder.cleanup()
