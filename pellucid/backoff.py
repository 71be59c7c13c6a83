"""How long to wait before a service that ended is started again."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """All times in seconds."""

    first: float = 0.25
    cap: float = 30.0
    forgiven_after: float = 30.0
    """A run of at least this length counts as sound: the next delay is the first one again."""


@dataclass(slots=True)
class Backoff:
    """The delays of one service: each is twice the one before, up to a cap."""

    policy: BackoffPolicy = field(default_factory=BackoffPolicy)
    failures: int = 0
    """Runs since the last sound one."""

    def delay_after(self, lifetime: float) -> float:
        """Seconds to wait after a run of ``lifetime`` seconds."""
        if lifetime >= self.policy.forgiven_after:
            self.failures = 0
        self.failures += 1
        # The exponent is bounded so that years of failing do not overflow a float.
        return min(self.policy.cap, self.policy.first * 2.0 ** min(self.failures - 1, 64))
