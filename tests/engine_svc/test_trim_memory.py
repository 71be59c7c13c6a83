"""In processes of their own: other tests' memory would be counted too."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FREE_BEHIND_ONE_THAT_STAYS = """
import gc, resource
from pathlib import Path
from engine_svc.trim_memory import trim_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

pieces = [bytearray(4096) for _ in range(20_000)]
pieces = pieces[-1:]
full = resident()
trim_memory()
print(full - resident(), gc.get_freeze_count())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries do as they see fit")
def test_what_was_freed_is_given_back_and_what_stays_is_frozen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREE_BEHIND_ONE_THAT_STAYS], cwd=ROOT, check=True, capture_output=True, text=True
    )

    given_back, frozen = map(int, done.stdout.split())
    assert frozen > 0
    assert given_back > 70_000_000
