"""What becomes of memory once a model is loaded."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress


def settle() -> None:
    """Take what is loaded as lasting, and give back what loading has freed.

    Collections leave out what stays for good: looking at all of it would be felt as a pause in every stream. glibc
    keeps what was freed in the middle of its heaps, tens of megabytes once a checkpoint was read; others are not asked.
    """
    gc.collect()
    gc.freeze()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
