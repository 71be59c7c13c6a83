"""Plain logs, because the default console renderer takes a second per traceback; and the kernels, if they can build."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from engine_svc.kernels.build import build, find_compiler
from engine_svc.kernels.library import Kernels


@pytest.fixture(autouse=True, scope="package")
def _plain_logs() -> Iterator[None]:
    structlog.reset_defaults()  # of other packages: their minimum level hides records from tests
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()])
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    """The compiled kernels of this source."""
    if find_compiler() is None:
        pytest.skip("no C++ compiler found")
    return Kernels(build())
