"""Exponential backoff between restarts of a service."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """All times in seconds."""

    first: float = 0.25
    cap: float = 30.0
    reset_after: float = 30.0
    """A run of at least this length resets the delay to ``first``."""


@dataclass(slots=True)
class Backoff:
    """Restart delays of one service, doubling up to the cap."""

    policy: BackoffPolicy = field(default_factory=BackoffPolicy)
    failures: int = 0
    """Consecutive runs shorter than ``reset_after``."""

    def delay_after(self, lifetime: float) -> float:
        """Delay in seconds after a run of ``lifetime`` seconds."""
        if lifetime >= self.policy.reset_after:
            self.failures = 0
        self.failures += 1
        # The exponent is bounded so that the power cannot overflow a float.
        return min(self.policy.cap, self.policy.first * 2.0 ** min(self.failures - 1, 64))
