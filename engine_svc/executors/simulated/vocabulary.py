"""How many token ids a tokenizer has, and which of them end a sequence: all that a simulated model needs of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelfiles.errors import ModelFileError
from modelfiles.gguf_vocabulary import read_vocabulary
from modelfiles.lfs import check_not_pointer
from modelfiles.token_spelling import added_tokens
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
        config_file = find("tokenizer_config.json")
        config = read_json(config_file) if config_file is not None else {}
        ids = Tokenizer.from_file(str(tokenizer_file)).get_vocab(with_added_tokens=True)
        ids |= {token["content"]: token_id for token_id, token in added_tokens({}, config)}
        ends = turn_ends_of(path for name in CONFIG_FILES if (path := find(name)) is not None)
    except ModelFileError as error:
        raise SettingsError(f"tokenizer: {error}") from None
    own = (ids[eos],) if (eos := _spelling(config.get("eos_token"))) in ids else ()
    return Vocabulary(max(ids.values()) + 1, tuple(dict.fromkeys((*ends, *own))))


def _spelling(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")
