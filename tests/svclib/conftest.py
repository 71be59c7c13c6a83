from __future__ import annotations

import pytest

from svclib.session import outbox


@pytest.fixture(autouse=True)
def _no_gap_between_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Session tests count turns of the event loop, not time."""
    monkeypatch.setattr(outbox, "FRAME_SECONDS", 0.0)
