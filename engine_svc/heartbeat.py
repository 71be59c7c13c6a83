"""Stall detection: whether the step loop makes progress. Readiness follows it."""

from __future__ import annotations

import time


class Heartbeat:
    """Time since a step is expected. Written by the step loop's thread alone, read by any.

    No step is expected while the loop is idle, or while no sequence is due. A step that never returns is a stall, and
    so is work that no step schedules.
    """

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._expected_since: float | None = None

    def expect_step(self) -> None:
        """There may be work, and a step begins."""
        if self._expected_since is None:
            self._expected_since = time.monotonic()

    def step_done(self) -> None:
        """A step did some work; the next one is expected from now."""
        self._expected_since = time.monotonic()

    def idle(self) -> None:
        """No sequence is due."""
        self._expected_since = None

    @property
    def is_stalled(self) -> bool:
        """Whether a step has been expected for longer than ``stall_seconds``."""
        expected_since = self._expected_since
        return expected_since is not None and time.monotonic() - expected_since > self._stall_seconds
