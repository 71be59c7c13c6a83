from __future__ import annotations

import os
import subprocess
import sys

import pytest

IMPORT_TORCH = (
    "from engine_svc.executors.openmp import set_openmp_wait_policy; set_openmp_wait_policy(); "
    "import torch; torch.ones(9).sum()"
)


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


def test_the_module_does_not_import_torch_itself() -> None:
    script = "import sys, engine_svc.loading, engine_svc.executors.openmp; assert 'torch' not in sys.modules"

    subprocess.run([sys.executable, "-c", script], check=True)
