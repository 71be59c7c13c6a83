"""Work that nothing can interrupt, in a process that can be killed.

A thread cannot be ended. Work on a client's input that may run for ever or fill the memory is therefore done in a child
process with a limit on memory. It is killed when its time is over, and the next call finds a fresh process.

A parent and its child talk over a socket pair (``child_wire.py``), which is the child's standard input. The child runs
``child_server.py``.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from svclib.child_wire import FAILED, receive_answer, send_message

_FIRST, _READY, _STARTING = range(3)
_ENVIRONMENT: Final = {
    # With an arena for each thread, a thread's first allocation would count as 64 MB or more of address space.
    "MALLOC_ARENA_MAX": "1",
    # glibc raises these two thresholds by itself after a large allocation is freed, and then keeps such memory.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}

# Not structlog: importing it would take a third of the memory of a child that does little.
log = logging.getLogger(__name__)


class ChildError(Exception):
    """The child gave no answer.

    ChildTimeout   it did not finish in time and was killed
    ChildDied      it ended by itself: out of memory, or a fault
      ChildNotStarted  it ended before it was given the message
    """


class ChildTimeout(ChildError):
    """See ``ChildError``."""


class ChildDied(ChildError):
    """See ``ChildError``."""


class ChildNotStarted(ChildDied):
    """See ``ChildError``. The message is not to blame."""


class ChildPool:
    """``size`` children, each of which does one call at a time. May be used from several threads.

    A child runs ``python -m module argument...``, and that module calls ``child_server.serve``. ``start_seconds``
    limits its start, up to its first answer; the start does not count against a call.
    """

    def __init__(self, size: int, module: str, arguments: Sequence[str] = (), *, start_seconds: float = 60.0) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._start_seconds = start_seconds
        self._idle: queue.PriorityQueue[tuple[int, int, Child | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._children: set[Child] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        for _ in range(size):
            self._add()

    def call(self, message: bytes, seconds: float) -> bytes:
        """The answer to a message. Waits for an idle child first, without a limit.

        Raises ``ChildTimeout`` when the child has not answered after ``seconds``, ``ChildDied``, and its subclass
        ``ChildNotStarted``.
        """
        with self._borrowed() as child:
            child.wait_for_start(self._start_seconds)
            return child.call(message, seconds)

    def close(self) -> None:
        """Kill all children; calls that run or wait end with ``ChildDied``."""
        with self._lock:
            self._is_closed = True
            children = tuple(self._children)
        for child in children:
            child.kill()
        self._offer(None, _FIRST)

    @contextmanager
    def _borrowed(self) -> Iterator[Child]:
        """An idle child. After a call without an answer it is replaced, so that the next call finds a fresh one."""
        _, _, child = self._idle.get()
        if child is None:
            self._offer(None, _FIRST)
            raise ChildDied("the pool is closed")
        try:
            yield child
        except BaseException as error:
            log.warning("child process replaced: %s: %r", " ".join(self._command[2:]), error)
            self._discard(child)
            self._add()
            raise
        self._offer(child, _READY)

    def _offer(self, child: Child | None, rank: int) -> None:
        """Put a child where the next call takes it, ready ones before starting ones; None ends the calls."""
        self._idle.put((rank, next(self._numbers), child))

    def _add(self) -> None:
        with self._lock:
            if not self._is_closed:
                child = Child(self._command)
                self._children.add(child)
                self._offer(child, _STARTING)

    def _discard(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
        child.kill()
        child.release()


class Child:
    """One child process, seen from its parent."""

    def __init__(self, command: Sequence[str]) -> None:
        self.socket, its_end = socket.socketpair()
        with its_end:
            self._process = subprocess.Popen(command, stdin=its_end.fileno(), env=os.environ | _ENVIRONMENT)
        self._has_started = False

    def wait_for_start(self, seconds: float) -> None:
        """Return when it can be called. Raises ``ChildNotStarted``."""
        if not self._has_started:
            wait_for_start(self.socket, time.monotonic() + seconds)
            self._has_started = True

    def call(self, message: bytes, seconds: float) -> bytes:
        return call(self.socket, message, seconds)[1]

    def kill(self) -> None:
        self._process.kill()
        # Wakes the thread that waits for an answer; closing the socket would not.
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._process.wait()

    def release(self) -> None:
        """Close our end. To be called by the thread that made the last call."""
        self.socket.close()


def wait_for_start(end: socket.socket, deadline: float) -> None:
    """Wait for the first answer, which says that there is a child at the other end. Raises ``ChildNotStarted``."""
    try:
        _answer(end, deadline)
    except ChildError as error:
        raise ChildNotStarted(str(error)) from None


def call(end: socket.socket, message: bytes, seconds: float) -> tuple[bytes, bytes]:
    """Send a message; the kind of its answer, and the answer. Raises ``ChildTimeout`` and ``ChildDied``."""
    deadline = time.monotonic() + seconds
    try:
        end.settimeout(seconds)
        send_message(end, message)
    except TimeoutError:
        raise ChildTimeout(f"no answer after {seconds:g} seconds") from None
    except OSError:
        raise ChildDied("it ended") from None
    return _answer(end, deadline)


def _answer(end: socket.socket, deadline: float) -> tuple[bytes, bytes]:
    try:
        kind, answer = receive_answer(end, deadline)
    except TimeoutError:
        raise ChildTimeout("no answer in time") from None
    except OSError:
        raise ChildDied("it ended") from None
    if kind == FAILED:
        raise ChildDied(answer.decode("utf-8", "replace"))
    return kind, answer
