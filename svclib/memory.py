"""The memory of this process, and what it keeps though nothing uses it."""

from __future__ import annotations

import asyncio
import gc
import resource
from functools import cache
from typing import Any, Final

TRIM_SECONDS: Final = 1.0
"""What is given back may still be in use that long."""


def address_space() -> int | None:
    """Bytes of address space that this process has, which is what ``RLIMIT_AS`` limits; None where nobody tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def trim_memory() -> None:
    """Give memory back to the system that nothing uses any more. Takes up to 0.1 seconds for a gigabyte.

    Two things keep it: circles of objects, such as gRPC makes of a call that ends with an error and its request, which
    a full collection finds; and what ``trim_heap`` gives back.
    """
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Give freed memory back to the system: glibc keeps what lies below the last block in use of each of its heaps."""
    if libc := _glibc():
        libc.malloc_trim(0)


class Watermark:
    """Trims the heap after half of what was held at its highest has been given back, from ``min_bytes`` up."""

    def __init__(self, min_bytes: int) -> None:
        self._min_bytes = min_bytes
        self._peak = 0

    def note(self, num_bytes: int) -> None:
        """So many bytes are held now. To be called on an event loop."""
        self._peak = max(self._peak, num_bytes)
        if self._peak >= self._min_bytes and num_bytes <= self._peak // 2:
            self._peak = num_bytes
            asyncio.get_running_loop().call_later(TRIM_SECONDS, trim_heap)


@cache
def _glibc() -> Any:
    """None where there is no ``malloc_trim``."""
    import ctypes  # Children of which there are many need it seldom.

    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None
