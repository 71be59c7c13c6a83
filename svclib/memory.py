"""Memory of this process, and how freed memory is returned to the system."""

from __future__ import annotations

import asyncio
import gc
import resource
from functools import cache
from typing import Any, Final

TRIM_SECONDS: Final = 1.0
"""Delay before trimming: released objects may still be referenced that long."""


def address_space() -> int | None:
    """Size of this process's address space in bytes, which ``RLIMIT_AS`` limits; None where it is not known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def trim_memory() -> None:
    """Return unused memory to the system. Takes up to 0.1 seconds for a gigabyte.

    First a full collection frees reference cycles, such as gRPC makes of a call that ends with an error and its
    request; then ``trim_heap``.
    """
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Return freed memory to the system: glibc keeps what lies below the last used block of each of its heaps."""
    if libc := _glibc():
        libc.malloc_trim(0)


class Watermark:
    """Trims the heap when usage falls to half of its peak, for peaks of at least ``min_bytes``."""

    def __init__(self, min_bytes: int) -> None:
        self._min_bytes = min_bytes
        self._peak = 0

    def note(self, num_bytes: int) -> None:
        """Report the bytes in use now. Must be called on an event loop."""
        self._peak = max(self._peak, num_bytes)
        if self._peak >= self._min_bytes and num_bytes <= self._peak // 2:
            self._peak = num_bytes
            asyncio.get_running_loop().call_later(TRIM_SECONDS, trim_heap)


@cache
def _glibc() -> Any:
    """None where there is no ``malloc_trim``."""
    import ctypes  # Not at the top: child processes import this module and rarely need it.

    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None
