"""How many token ids a tokenizer has, and which of them end a sequence: all that a simulated model needs of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from modelfiles.errors import ModelFileError
from modelfiles.gguf_vocabulary import read_vocabulary
from modelfiles.lfs import check_not_pointer
from modelfiles.token_table import read_json
from modelfiles.turn_ends import CONFIG_FILES, turn_ends_of
from protos import simulated
from svclib.config import SettingsError


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Every token id is below ``size``."""

    size: int
    eos_token_ids: tuple[int, ...]


def load_vocabulary(source: str) -> Vocabulary:
    """From a Hugging Face id, a folder, a GGUF file, or by default the simulated model's own.

    Raises ``SettingsError`` when there is no tokenizer in it.
    """
    if source in ("", simulated.MODEL_NAME):
        return Vocabulary(simulated.VOCAB_SIZE, (simulated.EOS_TOKEN_ID,))
    path = Path(source).expanduser()
    if path.is_file():
        return _from_gguf(path)
    return _from_folder(path) if path.is_dir() else _from_hub(source)


def _from_gguf(path: Path) -> Vocabulary:
    try:
        vocabulary = read_vocabulary(path)
    except (ModelFileError, OSError) as error:
        raise SettingsError(f"{path} is not a GGUF file with a tokenizer: {error}") from None
    return Vocabulary(len(vocabulary.tokens), vocabulary.turn_ends)


def _from_folder(folder: Path) -> Vocabulary:
    return _from_files(str(folder), lambda name: path if (path := folder / name).is_file() else None)


def _from_hub(repository: str) -> Vocabulary:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    def fetch(name: str) -> Path | None:
        try:
            return Path(hf_hub_download(repository, name))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError):
            return None

    return _from_files(repository, fetch)


def _from_files(source: str, find: Callable[[str], Path | None]) -> Vocabulary:
    """From ``tokenizer.json`` and, for the ends of a sequence, the configurations beside it."""
    from tokenizers import Tokenizer

    if (tokenizer_file := find("tokenizer.json")) is None:
        raise SettingsError(f"tokenizer: no tokenizer.json in {source}")
    try:
        check_not_pointer(tokenizer_file)
        ids = Tokenizer.from_file(str(tokenizer_file)).get_vocab(with_added_tokens=True)
        ends = turn_ends_of(path for name in CONFIG_FILES if (path := find(name)) is not None)
        config_file = find("tokenizer_config.json")
        eos = _eos_spelling(config_file) if config_file is not None else ""
    except ModelFileError as error:
        raise SettingsError(f"tokenizer: {error}") from None
    return Vocabulary(max(ids.values()) + 1, tuple(dict.fromkeys((*ends, *((ids[eos],) if eos in ids else ())))))


def _eos_spelling(config_file: Path) -> str:
    eos = read_json(config_file).get("eos_token")
    return str(eos.get("content", "")) if isinstance(eos, dict) else str(eos or "")
