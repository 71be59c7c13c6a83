"""Limits on the bytes that wait at one end of a session, for a slow reader or for a peer that does not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024

PORTION_BYTES: Final = 32 * 1024
"""A backlog is read in portions of about this size, so that a long one does not block the event loop."""

TRIM_BYTES: Final = MIB
"""Memory is returned to the system after a backlog of at least this size has been read."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """All in bytes of serialised messages."""

    waiting: int = 16 * MIB
    """Unread messages of one request. Beyond it the request ends with ``Overloaded``."""
    waiting_in_all: int = 64 * MIB
    """Unread messages of all requests of a session. Beyond it the request with the most of them ends."""
    unsent: int = 64 * MIB
    """Entries that the peer has not taken. Beyond it the session ends."""


DEFAULT_LIMITS: Final = SessionLimits()
