"""Runs the sampler tests with numpy on the CPU and with torch for any device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine_svc.sampling.cpu_rows import CpuRows
from engine_svc.sampling.device_rows import DeviceRows
from engine_svc.sampling.row_operations import RowOperations
from tests.engine_svc.sampling import given


@pytest.fixture(scope="module", params=["numpy", "torch"])
def operations(request: pytest.FixtureRequest) -> Iterator[RowOperations]:
    """Used by every sampler, ``given.adjust`` and ``given.draw`` of a test."""
    used: RowOperations = CpuRows() if request.param == "numpy" else DeviceRows(torch.device("cpu"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine_svc.sampling.sampler.CpuRows", lambda: used)
        patch.setattr(given, "operations", used)
        yield used
