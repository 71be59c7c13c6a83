"""Memory that the C library keeps after it was freed."""

from __future__ import annotations

import ctypes
from functools import cache


def trim_memory() -> None:
    """Give freed memory back to the system, where the C library is glibc; takes up to 0.1 seconds for a gigabyte.

    glibc has arenas for threads, and keeps what lies below the last block in use of each: gigabytes after large jobs.
    """
    if libc := _glibc():
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """None where there is no ``malloc_trim``."""
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None
