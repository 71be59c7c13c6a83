"""The memory of this process, and what the C library keeps of it after it was freed."""

from __future__ import annotations

import resource
from functools import cache
from typing import Any


def address_space() -> int | None:
    """Bytes of address space that this process has, which is what ``RLIMIT_AS`` limits; None where nobody tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def trim_memory() -> None:
    """Give freed memory back to the system, where the C library is glibc; takes up to 0.1 seconds for a gigabyte.

    glibc has arenas for threads, and keeps what lies below the last block in use of each: gigabytes after large jobs.
    """
    if libc := _glibc():
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    """None where there is no ``malloc_trim``."""
    import ctypes  # Children of which there are many need it seldom.

    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None
