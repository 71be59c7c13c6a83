"""Limits on the compilation of constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """``seconds`` of CPU time to compile one constraint; ``memory_bytes`` to compile it, and for all compiled ones."""

    seconds: float = 2.5
    memory_bytes: int = 256 * 2**20

    @property
    def wall_seconds(self) -> float:
        """From the arrival of a constraint to its answer, waiting included: on a busy machine CPU time has no end."""
        return 1.5 * self.seconds


DEFAULT_LIMITS: Final = CompileLimits()
QUICK_SECONDS: Final = 0.1
"""CPU time, 10 times that of a usual schema. Constraints that take longer are built in other threads."""
SLOW_SECONDS: Final = 0.25
NICENESS: Final = ((SLOW_SECONDS, 5), (0.5, 10), (1.2, 15))
"""Seconds of CPU time after which the niceness of a trial is raised, and by how much: new trials come before old ones,
and the step loop before both."""
SLOW_NICENESS: Final = NICENESS[0][1]
MAX_TRIALS: Final = 6
"""Constraints that are tried at the same time."""
SHARE_SECONDS: Final = 0.5
"""On the clock. The trial that has run longest is stopped when it is beyond its share and another constraint waits."""
MAX_WAITING: Final = 256
"""Constraints that wait or are being compiled."""
