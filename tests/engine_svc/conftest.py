"""Plain logs: the default console renderer takes a second for each traceback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True, scope="package")
def _plain_logs() -> Iterator[None]:
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()])
    yield
    structlog.reset_defaults()
