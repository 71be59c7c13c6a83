"""How torch's threads wait for each other between two pieces of work. Must be said before torch is imported."""

from __future__ import annotations

import os
from typing import Final

_SPINS: Final = "1000"


def set_openmp_wait_policy() -> None:
    """Let idle threads sleep after a few microseconds, unless the environment says otherwise.

    By default GNU OpenMP lets them spin for milliseconds. Where the cores are shared with other processes, as with the
    gateway on a small machine, they then hold the core that the thread they wait for needs: steps of 35 ms were seen
    to take a second. So short a spin costs nothing that can be measured when the cores are free.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
