"""Child processes that are cheap to kill: forks of one process, the server, which has loaded what they need.

A fork starts in milliseconds and takes only the memory that it writes to. It runs ``child_server.serve_forks``.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from svclib.child_process import Child, ChildDied, ChildNotStarted, call, wait_for_start
from svclib.child_wire import LAST

MAX_IDLE: Final = 2
"""Forks that wait for the next call. They answer faster than fresh ones, which copy memory first."""


class ForkedCall:
    """One message to a fork. ``stop`` may be called from any thread."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.can_be_reused = False

    def answer(self, message: bytes, seconds: float) -> bytes:
        """Raises ``ChildTimeout`` and, also after ``stop``, ``ChildDied``."""
        kind, answer = call(self._end, message, seconds)
        self.can_be_reused = kind != LAST
        return answer

    def stop(self) -> None:
        """End the fork."""
        self.can_be_reused = False
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)


class ForkServer:
    """Runs ``python -m module argument...``, which calls ``serve_forks``. May be used from several threads.

    ``start_seconds`` limits the start of the server and that of a fork. A server that has ended is replaced at the next
    call.
    """

    def __init__(self, module: str, arguments: Sequence[str] = (), *, start_seconds: float = 60.0) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._start_seconds = start_seconds
        self._lock = threading.Lock()
        self._forking = threading.Lock()
        self._is_closed = False
        self._server = Child(self._command)
        self._idle: list[socket.socket] = []
        self._running: set[ForkedCall] = set()

    @contextmanager
    def forked(self) -> Iterator[ForkedCall]:
        """A fork for one message; killed if it has not answered when the block ends. Raises ``ChildNotStarted``."""
        end = self._take_idle() or self._fork()
        forked = ForkedCall(end)
        try:
            self._add(forked)
            yield forked
        finally:
            self._put_back(forked, end)

    def close(self) -> None:
        """Kill the server and its forks, and start no others."""
        with self._lock:
            self._is_closed = True
            self._server.kill()
            for forked in self._running:
                forked.stop()
            for end in self._idle:
                end.close()
            self._idle.clear()

    def _take_idle(self) -> socket.socket | None:
        """The one that answered last, unless it has ended since."""
        with self._lock:
            while self._idle:
                end = self._idle.pop()
                if not _has_ended(end):
                    return end
                end.close()
        return None

    def _add(self, forked: ForkedCall) -> None:
        with self._lock:
            if self._is_closed:
                raise ChildNotStarted("the fork server is closed")
            self._running.add(forked)

    def _put_back(self, forked: ForkedCall, end: socket.socket) -> None:
        with self._lock:
            self._running.discard(forked)
            if forked.can_be_reused and len(self._idle) < MAX_IDLE and not self._is_closed:
                self._idle.append(end)
            else:
                end.close()

    def _fork(self, attempts: int = 2) -> socket.socket:
        """Our end of a connection to a new fork.

        A server that is being killed may still accept a connection, so a fork that does not start is tried again.
        """
        with self._forking:
            end = self._connection()
        try:
            wait_for_start(end, time.monotonic() + self._start_seconds)
        except ChildDied:
            end.close()
            if attempts > 1:
                return self._fork(attempts - 1)
            raise
        return end

    def _connection(self) -> socket.socket:
        for _ in range(2):
            server = self._server
            try:
                server.wait_for_start(self._start_seconds)
                return _hand_over(server)
            except ChildNotStarted:
                self._replace(server)
                raise
            except OSError:
                self._replace(server)
        raise ChildNotStarted("the fork server ended twice")

    def _replace(self, server: Child) -> None:
        with self._lock:
            if self._is_closed:
                raise ChildNotStarted("the fork server is closed")
            server.kill()
            server.release()
            self._server = Child(self._command)


def _has_ended(idle: socket.socket) -> bool:
    idle.setblocking(False)
    try:
        return not idle.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _hand_over(server: Child) -> socket.socket:
    """Give the server one end of a connection to fork for. Raises ``OSError`` when it has ended."""
    ours, its_end = socket.socketpair()
    with its_end:
        try:
            socket.send_fds(server.socket, [b"\0"], [its_end.fileno()])
        except OSError:
            ours.close()
            raise
    return ours
