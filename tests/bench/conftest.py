"""Benchmarks run on a tiny model, with the compiled kernels."""

from __future__ import annotations

from tests.engine_svc.conftest import kernels as kernels
from tests.engine_svc.offline.conftest import tiny_folder as tiny_folder
