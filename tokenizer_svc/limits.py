"""Limits of one request. A chat template is untrusted code: its time, memory and output are limited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LARGE_INPUT: Final = 100_000
"""Characters, or token ids, from which a call counts as large, because it may delay others; see ``pool``."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one rendering: ``seconds``, ``memory_bytes``, and ``chars`` of output."""

    seconds: float
    memory_bytes: int
    chars: int


DEFAULT_SECONDS: Final = 5.0
DEFAULT_MEMORY_MB: Final = 512
DEFAULT_PROMPT_CHARS: Final = 4_000_000
_OWN_CHARS: Final = 1_000_000
_CHARS_PER_SENT: Final = 4
"""A template may write ``_OWN_CHARS`` of its own, and each client character this many times, with JSON escapes."""


def limits_of(seconds: float, memory_mb: int, max_prompt_chars: int) -> Limits:
    """The limits of one rendering, from the settings."""
    return Limits(seconds, memory_mb << 20, _OWN_CHARS + _CHARS_PER_SENT * max_prompt_chars)


DEFAULT_LIMITS: Final = limits_of(DEFAULT_SECONDS, DEFAULT_MEMORY_MB, DEFAULT_PROMPT_CHARS)


class LimitExceeded(Exception):
    """A template exceeded a limit; the message names it."""


def out_of_memory(memory_bytes: int) -> LimitExceeded:
    """The error for the memory limit."""
    return LimitExceeded(f"the chat template needed more than {memory_bytes >> 20} MB of memory")
