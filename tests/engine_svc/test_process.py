"""In processes of their own: torch is imported already here, and other tests' memory would be counted too."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

IMPORT_TORCH = (
    "from engine_svc.process import set_openmp_wait_policy; set_openmp_wait_policy(); import torch; torch.ones(9).sum()"
)

FREE_BEHIND_ONE_THAT_STAYS = """
import gc, resource
from pathlib import Path
from engine_svc.process import freeze_heap

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

pieces = [bytearray(4096) for _ in range(20_000)]
pieces = pieces[-1:]
full = resident()
freeze_heap()
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


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")],
)
def test_threads_spin_briefly_unless_told_otherwise(given: dict[str, str], expected: str) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }

    shown = subprocess.run(
        [sys.executable, "-c", IMPORT_TORCH],
        env=environment | {"OMP_DISPLAY_ENV": "verbose"} | given,
        capture_output=True,
        text=True,
        check=True,
    )

    assert f"GOMP_SPINCOUNT = '{expected}'" in shown.stderr


def test_loading_does_not_import_torch_itself() -> None:
    script = "import sys, engine_svc.loading, engine_svc.process; assert 'torch' not in sys.modules"

    subprocess.run([sys.executable, "-c", script], check=True)
