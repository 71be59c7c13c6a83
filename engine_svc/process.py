"""Process-wide settings: how OpenMP threads wait (before torch is imported), and the heap (after a model is loaded)."""

from __future__ import annotations

import gc
import os
from typing import Final

from svclib.memory import release_file_pages, trim_heap

_SPINS: Final = "1000"


def set_openmp_wait_policy() -> None:
    """Let idle threads of torch sleep after a few microseconds, unless the environment says otherwise.

    Call it before torch is imported. By default GNU OpenMP threads spin for milliseconds. On a small machine, where the
    gateway and others share the cores, a spinning thread holds the core of the thread it waits for: steps of 35 ms were
    seen to take a second. A spin this short costs nothing measurable when the cores are free.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)


def freeze_heap() -> None:
    """Exempt all objects of the loaded model from garbage collection, and return unused memory to the system.

    Scanning these objects would pause every stream. Reading a checkpoint leaves tens of megabytes of freed memory, and
    loading torch as much of its libraries that no step uses.
    """
    gc.collect()
    gc.freeze()
    trim_heap()
    release_file_pages()
