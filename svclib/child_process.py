"""Work that nothing can interrupt, in a process that can be killed.

A thread cannot be ended. What a client's input can make run for ever, or fill the memory, therefore runs in a child
process with a limit on memory, is killed when its time is over, and the next call finds a fresh process.

A parent and its child talk over a socket pair, which is the child's standard input. A message is its length as four
bytes, most significant first, and that many bytes; an answer begins with one byte more, ``_ANSWERED`` or ``_FAILED``.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

from svclib.memory import address_space

_LENGTH: Final = struct.Struct(">I")
_ANSWERED: Final = b"\0"
_FAILED: Final = b"\1"
_STDIN: Final = 0
_FIRST, _READY, _STARTING = range(3)
_ENVIRONMENT: Final = {
    # With an arena for each thread, a thread's first allocation would count as 64 MB or more of address space.
    "MALLOC_ARENA_MAX": "1",
    # glibc raises these two by itself, and then keeps what was once large.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}

# Not structlog: it would be a third of the memory of a child that does little.
log = logging.getLogger(__name__)


class ChildError(Exception):
    """The child gave no answer.

    ChildTimeout   it did not finish in time and was killed
    ChildDied      it ended by itself: out of memory, or a fault
      ChildNotStarted  before it could be given anything
    """


class ChildTimeout(ChildError):
    """See ``ChildError``."""


class ChildDied(ChildError):
    """See ``ChildError``."""


class ChildNotStarted(ChildDied):
    """See ``ChildError``. The call is not to blame."""


class ChildPool:
    """``size`` children, each of which does one call at a time. May be used from several threads.

    A child runs ``python -m module argument...``, and that module calls ``serve``. ``start_seconds`` limit its start,
    up to its first answer; they are not counted against a call.
    """

    def __init__(self, size: int, module: str, arguments: Sequence[str] = (), *, start_seconds: float = 60.0) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._start_seconds = start_seconds
        self._idle: queue.PriorityQueue[tuple[int, int, _Child | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._children: set[_Child] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        for _ in range(size):
            self._add()

    def call(self, message: bytes, seconds: float) -> bytes:
        """The answer to a message. Waits for an idle child first, for as long as that takes.

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
    def _borrowed(self) -> Iterator[_Child]:
        """An idle child. One that did not answer is replaced, so that the next call finds a fresh one starting."""
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

    def _offer(self, child: _Child | None, rank: int) -> None:
        """Let the next call have a child, those that are ready first; None ends the calls."""
        self._idle.put((rank, next(self._numbers), child))

    def _add(self) -> None:
        with self._lock:
            if not self._is_closed:
                child = _Child(self._command)
                self._children.add(child)
                self._offer(child, _STARTING)

    def _discard(self, child: _Child) -> None:
        with self._lock:
            self._children.discard(child)
        child.kill()
        child.release()


class _Child:
    """One child, seen from its parent."""

    def __init__(self, command: Sequence[str]) -> None:
        self._socket, its_end = socket.socketpair()
        with its_end:
            self._process = subprocess.Popen(command, stdin=its_end.fileno(), env=os.environ | _ENVIRONMENT)
        self._has_started = False

    def wait_for_start(self, seconds: float) -> None:
        """Return when it can be called. Raises ``ChildNotStarted``."""
        if not self._has_started:
            try:
                self._answer(time.monotonic() + seconds)
            except ChildError as error:
                raise ChildNotStarted(str(error)) from None
            self._has_started = True

    def call(self, message: bytes, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(_LENGTH.pack(len(message)) + message)
        except TimeoutError:
            raise ChildTimeout(f"no answer after {seconds:g} seconds") from None
        except OSError:
            raise ChildDied("it ended") from None
        return self._answer(deadline)

    def kill(self) -> None:
        self._process.kill()
        # Wakes whoever waits for an answer; closing the socket would not.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait()

    def release(self) -> None:
        """Close our end. To be called by whoever made the last call."""
        self._socket.close()

    def _answer(self, deadline: float) -> bytes:
        try:
            kind, answer = _receive_exactly(self._socket, 1, deadline), _receive(self._socket, deadline)
        except TimeoutError:
            raise ChildTimeout("no answer in time") from None
        except OSError:
            raise ChildDied("it ended") from None
        if kind == _FAILED:
            raise ChildDied(answer.decode("utf-8", "replace"))
        return answer


def serve(handle: Callable[[bytes], bytes], *, memory_bytes: int) -> None:
    """Be the child: answer every message until the parent closes its end, or dies.

    ``handle`` may use ``memory_bytes`` of address space beyond what the process has now, where the system counts that
    (Linux does). What it raises ends the process, since nothing is known of its state.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means.
    parent = socket.socket(fileno=os.dup(_STDIN))
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(parent, messages), daemon=True).start()
    _limit_memory(memory_bytes)
    _send(parent, _ANSWERED, b"")
    while True:
        try:
            answer = handle(messages.get())
        except BaseException as error:
            _fail(parent, error)
        _send(parent, _ANSWERED, answer)


def _fail(parent: socket.socket, error: BaseException) -> NoReturn:
    if not isinstance(error, MemoryError):  # Of which there is nothing to learn, and no memory to say it.
        traceback.print_exc()
    _send(parent, _FAILED, type(error).__name__.encode())
    os._exit(1)


def _read(parent: socket.socket, messages: queue.SimpleQueue[bytes]) -> None:
    """Pass messages on. A parent that is gone wants no answer, so what runs is not waited for."""
    try:
        while True:
            messages.put(_receive(parent, None))
    except OSError:
        os._exit(0)
    except MemoryError as error:
        _fail(parent, error)


def _limit_memory(more: int) -> None:
    if (now := address_space()) is not None:
        limit, hard = now + more, resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _send(end: socket.socket, kind: bytes, answer: bytes) -> None:
    with suppress(OSError):
        end.sendall(kind + _LENGTH.pack(len(answer)) + answer)


def _receive(end: socket.socket, deadline: float | None) -> bytes:
    (length,) = _LENGTH.unpack(_receive_exactly(end, _LENGTH.size, deadline))
    return _receive_exactly(end, length, deadline)


def _receive_exactly(end: socket.socket, size: int, deadline: float | None) -> bytes:
    """Raises ``TimeoutError``, and ``OSError`` when the other end is closed."""
    data = bytearray(size)
    received = 0
    with memoryview(data) as view:
        while received < size:
            if deadline is not None:
                end.settimeout(max(1e-3, deadline - time.monotonic()))
            if not (count := end.recv_into(view[received:])):
                raise ConnectionResetError
            received += count
    return bytes(data)
