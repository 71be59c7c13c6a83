"""Locates the configured model on disk."""

from __future__ import annotations

from pathlib import Path

from engine_svc.weights.errors import load_errors
from modelfiles import location


def locate(model: str) -> Path:
    """See ``modelfiles.location.locate``. Raises ``ModelLoadError``."""
    with load_errors():
        return location.locate(model)
