"""Memory of this process, and how freed memory is returned to the system."""

from __future__ import annotations

import asyncio
import gc
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final

TRIM_SECONDS: Final = 1.0
"""Delay before trimming: released objects may still be referenced that long."""

_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ *(.*)")
"""A mapping's first line in ``/proc/self/smaps``: start, end, permissions, file"""

_MADV_DONTNEED: Final = 4


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


def release_file_pages() -> None:
    """Unmap the pages of programs and libraries that were touched so far; they are mapped again when next used.

    A library's start-up, such as torch's registration of thousands of operators, touches many pages that no request
    needs. Only mappings that cannot be written and were never written: their pages equal the file, and stay in the
    system's page cache. Does nothing where there is no ``/proc``.
    """
    import ctypes  # Not at the top, see ``_libc``.

    with suppress(OSError):
        for start, end in list(_unwritten_file_mappings()):
            _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _unwritten_file_mappings() -> Iterator[tuple[int, int]]:
    """Start and end address of private read-only mappings of files without pages of this process's own."""
    start = end = 0
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if header := _MAPPING.match(line):
                is_file = header[3] in ("r-xp", "r--p") and header[4].startswith("/")
                start, end = (int(header[1], 16), int(header[2], 16)) if is_file else (0, 0)
            elif end and line.startswith("Anonymous:") and line.split()[1] == "0":
                yield start, end


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
def _libc() -> Any:
    import ctypes  # Not at the top: child processes import this module and rarely need it.

    return ctypes.CDLL(None)


def _glibc() -> Any:
    """None where there is no ``malloc_trim``."""
    libc = _libc()
    return libc if hasattr(libc, "malloc_trim") else None
