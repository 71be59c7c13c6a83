"""What is wrong with a model that cannot be loaded."""

from __future__ import annotations

from svclib.config import SettingsError


class ModelLoadError(SettingsError):
    """The model that the settings name is missing, damaged or not supported; the message says what would do."""
