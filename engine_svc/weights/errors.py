"""What is wrong with a model that cannot be loaded."""

from __future__ import annotations

from pathlib import Path

from modelfiles.errors import ModelFileError
from modelfiles.lfs import check_not_pointer
from svclib.config import SettingsError


class ModelLoadError(SettingsError):
    """The model that the settings name is missing, damaged or not supported; the message says what would do."""


def check_is_file_itself(path: Path) -> None:
    """Raises ``ModelLoadError`` for a Git LFS pointer."""
    try:
        check_not_pointer(path)
    except ModelFileError as error:
        raise ModelLoadError(str(error)) from error
