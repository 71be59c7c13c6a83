"""What a child process does: read messages, do the work within its limits, answer.

``serve`` answers in the process itself, ``serve_forks`` in forks of it. A fork starts in milliseconds, because it needs
no new interpreter and has what the process has loaded, so killing one costs little.
"""

from __future__ import annotations

import os
import queue
import resource
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn, TypeAlias

from svclib.child_wire import ANSWERED, FAILED, LAST, receive_message, send_answer
from svclib.memory import address_space

Handle: TypeAlias = Callable[[bytes], bytes]
Niceness: TypeAlias = Sequence[tuple[float, int]]
"""Seconds of CPU time, and by how much the niceness is raised once they are used up; both ascending."""

_STDIN: Final = 0
_SMALL_STACK: Final = 256 * 1024
_LEAST_WAIT: Final = 0.01
"""Seconds between two looks at the CPU time; the thread may get little of it."""
_MAX_NICENESS: Final = 19
_NICENESS: Final = os.getpriority(os.PRIO_PROCESS, 0)


def serve(handle: Handle, *, memory_bytes: int) -> None:
    """Answer every message until the parent closes its end, or dies.

    ``handle`` may use ``memory_bytes`` of address space beyond what the process has now, where the system counts that
    (Linux does). An exception ends the process, since its state is unknown.
    """
    parent = _parent()
    _limit_memory(memory_bytes)
    _serve(parent, handle, ())


def serve_forks(handle: Handle, *, memory_bytes: int, stack_bytes: int, niceness: Niceness = ()) -> None:
    """Fork for each connection that ``ForkServer`` hands over, until the parent closes its end, or dies.

    A fork serves its connection as ``serve`` does. Its ``handle`` has a stack of ``stack_bytes``. A fork whose niceness
    was raised by ``niceness`` ends after that answer, since niceness cannot be lowered again.
    """
    parent = _parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The system reaps the forks.
    with _stack_size(stack_bytes):
        forking = threading.Thread(target=_fork_forever, args=(parent, handle, niceness, memory_bytes))
        forking.start()
    forking.join()


def _fork_forever(parent: socket.socket, handle: Handle, niceness: Niceness, memory_bytes: int) -> None:
    _limit_memory(memory_bytes)
    send_answer(parent, ANSWERED, b"")
    while descriptors := socket.recv_fds(parent, 1, 1)[1]:
        with socket.socket(fileno=descriptors[0]) as connection:
            if _fork() == 0:
                parent.close()
                _serve(connection, handle, niceness)
    os._exit(0)


def _fork() -> int | None:
    """As ``os.fork``; None when the system refuses. The connection is then closed without an answer."""
    try:
        return os.fork()
    except OSError:
        return None


def _serve(parent: socket.socket, handle: Handle, niceness: Niceness) -> NoReturn:
    reader = _Reader(parent, niceness)
    with _stack_size(_SMALL_STACK):
        threading.Thread(target=reader.run, daemon=True).start()
    send_answer(parent, ANSWERED, b"")
    while True:
        message = reader.messages.get()
        try:
            answer = handle(message)
        except BaseException as error:
            _fail(parent, error)
        reader.is_idle = True
        if reader.is_nice:
            send_answer(parent, LAST, answer)
            os._exit(0)
        send_answer(parent, ANSWERED, answer)


class _Reader:
    """A thread that reads messages while the main thread works.

    It ends the process when the parent closes its end: no answer is needed then, and nothing else interrupts the work.
    """

    def __init__(self, parent: socket.socket, niceness: Niceness) -> None:
        self.messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.is_idle = True
        self.is_nice = False
        self._parent = parent
        self._niceness = niceness

    def run(self) -> None:
        try:
            while True:
                message = receive_message(self._parent)
                self.is_idle, began_at = False, time.process_time()
                self.messages.put(message)
                self._yield_cpu(began_at)
        except OSError:
            os._exit(0)
        except MemoryError as error:
            _fail(self._parent, error)

    def _yield_cpu(self, began_at: float) -> None:
        """Raise the niceness of the main thread while it uses CPU time, until there is something to read."""
        for seconds, more in self._niceness:
            while (left := began_at + seconds - time.process_time()) > 0 or self.is_idle:
                if self._is_readable(None if self.is_idle else max(left, _LEAST_WAIT)):
                    return
            self.is_nice = True
            os.setpriority(os.PRIO_PROCESS, os.getpid(), min(_MAX_NICENESS, _NICENESS + more))

    def _is_readable(self, seconds: float | None) -> bool:
        return bool(select.select([self._parent], [], [], seconds)[0])


def _parent() -> socket.socket:
    """The connection to the parent, and no copy of it elsewhere."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means.
    parent = socket.socket(fileno=os.dup(_STDIN))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, _STDIN)
    os.close(null)
    return parent


def _fail(parent: socket.socket, error: BaseException) -> NoReturn:
    if not isinstance(error, MemoryError):  # Its traceback says nothing, and there is no memory to print it.
        traceback.print_exc()
    send_answer(parent, FAILED, type(error).__name__.encode())
    os._exit(1)


def _limit_memory(more: int) -> None:
    if (now := address_space()) is not None:
        limit, hard = now + more, resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


@contextmanager
def _stack_size(num_bytes: int) -> Iterator[None]:
    """For the threads that start in the block."""
    usual = threading.stack_size(num_bytes)
    try:
        yield
    finally:
        threading.stack_size(usual)
