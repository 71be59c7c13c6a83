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


class LimitExceeded(Exception):
    """A template used more than it may; the message says of what."""


def out_of_memory(memory_bytes: int) -> LimitExceeded:
    """That the memory was not enough."""
    return LimitExceeded(f"the chat template needed more than {memory_bytes >> 20} MB of memory")
