"""Whether the step loop does what it owes: the truth behind readiness."""

from __future__ import annotations

import time


class Heartbeat:
    """Since when a step is owed. Written by the step loop's thread alone, read by any.

    Being idle, or waiting for sequences that are not due, owes nothing. A step that never returns does, and so does
    work that no step takes up.
    """

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._owed_since: float | None = None

    def owe(self) -> None:
        """There may be work, and a step begins."""
        if self._owed_since is None:
            self._owed_since = time.monotonic()

    def pay(self) -> None:
        """A step did some work; the next one is owed from now."""
        self._owed_since = time.monotonic()

    def rest(self) -> None:
        """There is nothing to do now."""
        self._owed_since = None

    @property
    def is_stalled(self) -> bool:
        """Whether a step has been owed for longer than ``stall_seconds``."""
        owed_since = self._owed_since
        return owed_since is not None and time.monotonic() - owed_since > self._stall_seconds
