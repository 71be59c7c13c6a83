"""What one request may use. A chat template is a program from the internet: it gets a time, a memory and a size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LARGE_INPUT: Final = 100_000
"""Characters, or ids, from which on a call may take long enough to be felt by others; see ``pool``."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one rendering: its ``seconds``, the ``memory_bytes`` that it may take, the ``chars`` that it may write."""

    seconds: float
    memory_bytes: int
    chars: int


DEFAULT_SECONDS: Final = 5.0
DEFAULT_MEMORY_MB: Final = 512
DEFAULT_PROMPT_CHARS: Final = 4_000_000
_OWN_CHARS: Final = 1_000_000
_CHARS_PER_SENT: Final = 4
"""A template may write so many characters of its own, and each of the client's so often, JSON escapes included."""


def limits_of(seconds: float, memory_mb: int, max_prompt_chars: int) -> Limits:
    """The limits of one rendering by the service's settings."""
    return Limits(seconds, memory_mb << 20, _OWN_CHARS + _CHARS_PER_SENT * max_prompt_chars)


DEFAULT_LIMITS: Final = limits_of(DEFAULT_SECONDS, DEFAULT_MEMORY_MB, DEFAULT_PROMPT_CHARS)


class LimitExceeded(Exception):
    """A template used more than it may; the message says of what."""


def out_of_memory(memory_bytes: int) -> LimitExceeded:
    """That the memory was not enough."""
    return LimitExceeded(f"the chat template needed more than {memory_bytes >> 20} MB of memory")
