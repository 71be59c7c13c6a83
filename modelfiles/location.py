"""Locates a model's files: a folder, a .gguf file, or the Hugging Face hub. Does not read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from modelfiles.errors import ModelFileError

_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES: Final = [
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    # Pooling and limits of sentence-transformers.
    "modules.json",
    "sentence_bert_config.json",
    "*_Pooling/config.json",
]


def locate(model: str) -> Path:
    """The folder or .gguf file of ``model``: a path, or a Hugging Face id, which is downloaded unless cached.

    Raises ``ModelFileError`` if it does not exist.
    """
    path = Path(model).expanduser()
    if path.is_file() and path.suffix != ".gguf":
        raise ModelFileError(f"{model} is neither a folder nor a .gguf file")
    if path.is_file():
        return path
    if path.is_dir():
        return _inside(path)
    if not _HUB_ID.fullmatch(model):
        raise ModelFileError(f"{model} does not exist; give a folder, a .gguf file or a Hugging Face id (owner/name)")
    return _inside(_download(model))


def find_file(source: str, name: str) -> Path | None:
    """A file of a folder or of a Hugging Face id, which is downloaded unless cached; None if it does not exist."""
    try:
        return get_file(source, name)
    except ModelFileError:
        return None


def get_file(source: str, name: str) -> Path:
    """The same for a required file. Raises ``ModelFileError`` if it does not exist."""
    folder = Path(source).expanduser()
    if not folder.is_dir():
        return _download_file(source, name)
    if not (folder / name).is_file():
        raise ModelFileError(f"{folder} has no {name}")
    return folder / name


def _inside(folder: Path) -> Path:
    """The folder itself if it has a config.json, else its only .gguf file."""
    if (folder / "config.json").is_file():
        return folder
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    found = ", ".join(file.name for file in files) or "none"
    raise ModelFileError(f"{folder} must have a config.json or exactly one .gguf file (found: {found})")


def _download_file(repository: str, name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository, name))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise ModelFileError(f"cannot download {name} of {repository!r}: {error}") from error


def _download(model: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=_HUB_FILES))
    # The hub's client raises its own errors, those of its HTTP library and those of the operating system.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ModelFileError(f"{model} is not a local path and could not be downloaded: {reason}") from error
