from __future__ import annotations

from pathlib import Path

import pytest

from tests.pellucid.children import Programs


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """A folder for small programs in place of services."""
    return Programs(tmp_path, monkeypatch)
