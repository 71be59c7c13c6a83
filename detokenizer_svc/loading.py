"""Loads a vocabulary: from a Hugging Face folder or id, a GGUF file, or the one of the simulated model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detokenizer_svc.vocabulary import Vocabulary
from modelfiles.errors import ModelFileError
from modelfiles.token_table import TokenTable, read_json, read_token_table, simulated_table, table_of
from protos import simulated
from svclib.config import SettingsError


class VocabularyError(SettingsError):
    """The vocabulary cannot be loaded; the message is for the person who starts the service."""


def load(source: str) -> Vocabulary:
    """The vocabulary of ``simulated``, a GGUF file, a folder, or a Hugging Face id. Raises ``VocabularyError``."""
    if source == simulated.MODEL_NAME:
        return simulated_vocabulary()
    path = Path(source).expanduser()
    if path.suffix == ".gguf":
        return from_gguf(path)
    return from_folder(path) if path.is_dir() else from_hub(source)


def simulated_vocabulary() -> Vocabulary:
    """One token for each byte, then the control tokens."""
    return _vocabulary(simulated_table())


def from_folder(folder: Path) -> Vocabulary:
    """From ``tokenizer.json``, and ``tokenizer_config.json`` where there is one."""
    if not (folder / "tokenizer.json").is_file():
        raise VocabularyError(f"{folder} has no tokenizer.json; only tokenizers in that format are supported")
    return _read(folder)


def from_hub(repository: str) -> Vocabulary:
    """From the files of a repository on the Hugging Face hub, or of its local cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        description = hf_hub_download(repository, "tokenizer.json")
    except Exception as error:
        raise VocabularyError(f"cannot get tokenizer.json of {repository!r}: {error}") from error
    try:
        config = _json(Path(hf_hub_download(repository, "tokenizer_config.json")))
    except EntryNotFoundError:
        config = {}
    return from_json(_json(Path(description)), config)


def from_json(description: dict[str, Any], config: dict[str, Any]) -> Vocabulary:
    """From the contents of ``tokenizer.json`` and ``tokenizer_config.json``."""
    try:
        return _vocabulary(table_of(description, config))
    except ModelFileError as error:
        raise VocabularyError(str(error)) from error


def from_gguf(path: Path) -> Vocabulary:
    """From the metadata of a GGUF file."""
    return _read(path)


def _read(path: Path) -> Vocabulary:
    try:
        return _vocabulary(read_token_table(path))
    except ModelFileError as error:
        raise VocabularyError(str(error)) from error


def _json(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except ModelFileError as error:
        raise VocabularyError(str(error)) from error


def _vocabulary(table: TokenTable) -> Vocabulary:
    return Vocabulary.of(
        dict(enumerate(table.spelled)), special=table.special, first=table.first, text_steps=table.text_steps
    )
