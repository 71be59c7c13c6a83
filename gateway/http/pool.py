"""All connections of the gateway: never more than a limit, and new connections are always accepted."""

from __future__ import annotations

import resource
from typing import Final, Protocol

import structlog

_WANTED_FILES: Final = 65_536
_FILES_FOR_OTHERS: Final = 128
"""File descriptors for anything but client connections: services, logs, libraries."""

log = structlog.get_logger(__name__)


class Evictable(Protocol):
    """What the pool needs of a connection."""

    def evict(self) -> None:
        """Close immediately. Called only while no request is served."""
        ...


class ConnectionPool:
    """Counts connections. Beyond the limit the one that has been idle for longest is closed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._idle: dict[Evictable, None] = {}
        """The longest idle first."""

    def add(self, connection: Evictable) -> None:
        """Count a new, idle connection. It is evicted itself when all others serve requests."""
        self._count += 1
        self.note_idle(connection)
        if self._count > self._limit:
            victim = next(iter(self._idle))
            del self._idle[victim]
            victim.evict()

    def note_idle(self, connection: Evictable) -> None:
        """The connection serves no request from now on."""
        self._idle.pop(connection, None)
        self._idle[connection] = None

    def note_busy(self, connection: Evictable) -> None:
        """The connection serves a request from now on."""
        self._idle.pop(connection, None)

    def remove(self, connection: Evictable) -> None:
        """The connection is lost."""
        self._count -= 1
        self._idle.pop(connection, None)

    def check_integrity(self) -> None:
        assert 0 <= len(self._idle) <= self._count


def raise_file_limit() -> int:
    """Raise the limit on open files as far as the system allows. Returns the number of connections it leaves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as error:
            log.warning("cannot raise the limit on open files", limit=soft, error=str(error))
    allowed = _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    return max(1, allowed - _FILES_FOR_OTHERS)
