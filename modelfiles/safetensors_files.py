"""The safetensors files of a Hugging Face folder.

Format: https://huggingface.co/docs/transformers/big_models#sharded-checkpoints
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from modelfiles.errors import ModelFileError
from modelfiles.json_file import read_json

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"


def weight_files(folder: Path) -> list[Path]:
    """The shards in the index, or the single file. Raises ``ModelFileError`` naming missing files."""
    index = folder / INDEX_FILE
    shards = read_json(index).get("weight_map", {}) if index.is_file() else {"": SINGLE_FILE}
    names = sorted(set(shards.values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        raise ModelFileError(
            f"{folder} lacks {', '.join(missing) or 'weights'}; weights are read from safetensors only"
        )
    return [folder / name for name in names]
