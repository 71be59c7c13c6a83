"""Errors of loading a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modelfiles.errors import ModelFileError
from modelfiles.lfs import check_not_pointer
from svclib.config import SettingsError


class ModelLoadError(SettingsError):
    """The configured model is missing, damaged or not supported; the message says what is supported."""


@contextmanager
def load_errors() -> Iterator[None]:
    """Convert ``ModelFileError`` to ``ModelLoadError``."""
    try:
        yield
    except ModelFileError as error:
        raise ModelLoadError(str(error)) from error


def check_not_lfs_pointer(path: Path) -> None:
    """Raises ``ModelLoadError`` for a Git LFS pointer."""
    with load_errors():
        check_not_pointer(path)
