"""Loads a vocabulary: from a Hugging Face folder or id, a GGUF file, or the one of the simulated model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from detokenizer_svc.vocabulary import Vocabulary
from protos import simulated
from svclib.config import SettingsError
from svclib.gguf_metadata import GgufError, read_metadata
from svclib.token_spelling import GGUF_SPELLINGS, Spelling, added_tokens, model_tokens, spelling_of

_GGUF_MODEL: Final = "tokenizer.ggml.model"
_GGUF_TOKENS: Final = "tokenizer.ggml.tokens"
_GGUF_TYPES: Final = "tokenizer.ggml.token_type"
_GGUF_SPECIAL: Final = (2, 3)
"""Token types UNKNOWN and CONTROL."""
_GGUF_ADDED: Final = (*_GGUF_SPECIAL, 4)
"""Those and USER_DEFINED."""


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
    tokens = {value: bytes([value]) for value in range(simulated.NUM_BYTES)}
    control = {simulated.NUM_BYTES + n: text.encode() for n, text in enumerate(simulated.CONTROL_TOKENS)}
    return Vocabulary.of(tokens | control, special=control)


def from_folder(folder: Path) -> Vocabulary:
    """From ``tokenizer.json``, and ``tokenizer_config.json`` where there is one."""
    description = folder / "tokenizer.json"
    if not description.is_file():
        raise VocabularyError(f"{folder} has no tokenizer.json; only tokenizers in that format are supported")
    config = folder / "tokenizer_config.json"
    return from_json(_read(description), _read(config) if config.is_file() else {})


def from_hub(repository: str) -> Vocabulary:
    """From the files of a repository on the Hugging Face hub, or of its local cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        description = hf_hub_download(repository, "tokenizer.json")
    except Exception as error:
        raise VocabularyError(f"cannot get tokenizer.json of {repository!r}: {error}") from error
    try:
        config = _read(Path(hf_hub_download(repository, "tokenizer_config.json")))
    except EntryNotFoundError:
        config = {}
    return from_json(_read(Path(description)), config)


def from_json(description: dict[str, Any], config: dict[str, Any]) -> Vocabulary:
    """From the contents of ``tokenizer.json`` and ``tokenizer_config.json``."""
    spelling = _spelling(description)
    try:
        tokens = {token_id: spelling.model_token(token) for token, token_id in model_tokens(description["model"])}
        added = dict(added_tokens(description, config))
        tokens |= {token_id: spelling.added_token(token["content"]) for token_id, token in added.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VocabularyError(f"tokenizer.json is not in the usual format: {error!r}") from error
    return Vocabulary.of(tokens, [token_id for token_id, token in added.items() if token.get("special")])


def from_gguf(path: Path) -> Vocabulary:
    """From the metadata of a GGUF file."""
    try:
        metadata: dict[str, Any] = dict(read_metadata(path, (_GGUF_MODEL, _GGUF_TOKENS, _GGUF_TYPES)))
    except (OSError, GgufError) as error:
        raise VocabularyError(f"cannot read {path}: {error}") from error
    spelling = GGUF_SPELLINGS.get(metadata.get(_GGUF_MODEL, ""))
    if spelling is None or _GGUF_TOKENS not in metadata:
        raise VocabularyError(f"{path} has a vocabulary of kind {metadata.get(_GGUF_MODEL)!r}, which is not supported")
    kinds = dict(enumerate(metadata.get(_GGUF_TYPES, ())))
    tokens = {
        n: spelling.added_token(token) if kinds.get(n) in _GGUF_ADDED else spelling.model_token(token)
        for n, token in enumerate(metadata[_GGUF_TOKENS])
    }
    return Vocabulary.of(tokens, [n for n in tokens if kinds.get(n) in _GGUF_SPECIAL])


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise VocabularyError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise VocabularyError(f"{path} holds no JSON object")
    return content


def _spelling(description: dict[str, Any]) -> Spelling:
    spelling = spelling_of(description)
    if spelling is None:
        kind = (description.get("decoder") or {}).get("type")
        raise VocabularyError(
            f"a tokenizer with decoder {kind!r} is not supported; byte-level, sentencepiece and word-piece ones are"
        )
    return spelling
