"""What is wrong with a model that cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modelfiles.errors import ModelFileError
from modelfiles.lfs import check_not_pointer
from svclib.config import SettingsError


class ModelLoadError(SettingsError):
    """The model that the settings name is missing, damaged or not supported; the message says what would do."""


@contextmanager
def load_errors() -> Iterator[None]:
    """Raise a ``ModelFileError`` from within as ``ModelLoadError``."""
    try:
        yield
    except ModelFileError as error:
        raise ModelLoadError(str(error)) from error


def check_not_lfs_pointer(path: Path) -> None:
    """Raises ``ModelLoadError`` for a Git LFS pointer."""
    with load_errors():
        check_not_pointer(path)
