"""What becomes of memory once a model is loaded."""

from __future__ import annotations

import gc

from svclib.memory import trim_heap


def trim_memory() -> None:
    """Take what is loaded as lasting, and give back what loading has freed.

    Collections leave out what stays for good: looking at all of it would be felt as a pause in every stream. Reading a
    checkpoint leaves tens of megabytes of freed memory.
    """
    gc.collect()
    gc.freeze()
    trim_heap()
