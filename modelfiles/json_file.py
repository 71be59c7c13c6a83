"""Reads the JSON files beside a model's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from modelfiles.errors import ModelFileError
from modelfiles.lfs import check_not_pointer


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ``ModelFileError``."""
    check_not_pointer(path)
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{path} is not a JSON object")
    return content
