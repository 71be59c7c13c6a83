"""What compiling a constraint may take, as the settings say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """``seconds`` for one constraint; ``memory_bytes`` to compile it, and for all compiled ones together."""

    seconds: float = 2.5
    memory_bytes: int = 256 * 2**20


DEFAULT_LIMITS: Final = CompileLimits()
