"""How much may wait at one end of a session: for a reader that is slow, and for a peer that does not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024

PORTION_BYTES: Final = 32 * 1024
"""What waits is read in portions of about this size, so that a long backlog does not hold the event loop."""

TRIM_BYTES: Final = MIB
"""After a backlog of this size has gone, memory is given back to the system."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """All in bytes, as they look on the wire."""

    waiting: int = 16 * MIB
    """Of one request, until its reader takes them. Beyond it the request ends with ``Overloaded``."""
    waiting_in_all: int = 64 * MIB
    """Of all requests of a session. Beyond it the request with the most ends."""
    unsent: int = 64 * MIB
    """Until the peer takes them. Beyond it the session is lost."""


DEFAULT_LIMITS: Final = SessionLimits()
