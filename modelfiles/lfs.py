"""Recognises Git LFS pointers: short text files in place of large files, in a clone made without ``git lfs``.

Format: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from modelfiles.errors import ModelFileError

_FIRST_LINE: Final = b"version https://git-lfs.github.com/spec/"
_NAMES: Final = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.gguf")


def check_not_pointer(path: Path) -> None:
    """Raises ``ModelFileError`` for a pointer; an unreadable file is left to its reader."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(_FIRST_LINE))
    except OSError:
        return
    if begin == _FIRST_LINE:
        raise ModelFileError(f"{path} is a Git LFS pointer, not the file itself; run git lfs pull")


def check_no_pointers(folder: Path, names: Iterable[str] = _NAMES) -> None:
    """The same for the files of a folder that match ``names``. Raises ``ModelFileError`` naming the first pointer."""
    for name in names:
        for path in sorted(folder.glob(name)):
            check_not_pointer(path)
