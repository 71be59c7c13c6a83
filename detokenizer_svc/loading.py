"""Loads a vocabulary: from a Hugging Face folder or id, a GGUF file, or the one of the simulated model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from detokenizer_svc.vocabulary import Vocabulary
from protos import simulated
from svclib.config import SettingsError
from svclib.gguf_metadata import GgufError, read_metadata

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WITHIN_A_WORD: Final = "##"
_SPACE_MARK: Final = "\u2581"

_GGUF_MODEL: Final = "tokenizer.ggml.model"
_GGUF_TOKENS: Final = "tokenizer.ggml.tokens"
_GGUF_TYPES: Final = "tokenizer.ggml.token_type"
_GGUF_SPECIAL: Final = (2, 3)
"""Token types UNKNOWN and CONTROL."""
_GGUF_ADDED: Final = (*_GGUF_SPECIAL, 4)
"""Those and USER_DEFINED."""


class Spelling(NamedTuple):
    """How a file writes tokens: functions from what is written to the bytes it stands for."""

    model_token: Callable[[str], bytes]
    added_token: Callable[[str], bytes]


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
        tokens = {token_id: spelling.model_token(token) for token, token_id in _model_tokens(description["model"])}
        added = dict(_added_tokens(description, config))
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
    spelling = _GGUF_SPELLINGS.get(metadata.get(_GGUF_MODEL, ""))
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
    """How the tokens are written, found from what the tokenizer would do to decode them."""
    decoder = description.get("decoder") or {}
    steps = decoder.get("decoders", [decoder])
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return _BYTE_LEVEL
    if kinds & {"ByteFallback", "Metaspace"} or any(step.get("pattern") == {"String": _SPACE_MARK} for step in steps):
        return _METASPACE
    if "WordPiece" in kinds:
        return _WORD_PIECE
    raise VocabularyError(
        f"a tokenizer with decoder {decoder.get('type')!r} is not supported; byte-level, sentencepiece and "
        "word-piece ones are"
    )


def _model_tokens(model: dict[str, Any]) -> list[tuple[str, int]]:
    """Tokens and ids; a Unigram model lists ``[token, score]`` in the order of the ids."""
    vocab = model["vocab"]
    return list(vocab.items()) if isinstance(vocab, dict) else [(token, n) for n, (token, _) in enumerate(vocab)]


def _added_tokens(description: dict[str, Any], config: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Added tokens in the order in which they apply: the configuration has the last word."""
    own = [(int(added["id"]), added) for added in description.get("added_tokens", ())]
    configured = [(int(token_id), added) for token_id, added in config.get("added_tokens_decoder", {}).items()]
    return own + configured


def _metaspace(token: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace(_SPACE_MARK, " ").encode()


def _word_piece(token: str) -> bytes:
    """Words with a space before each, in place of the spaces that such a vocabulary has lost.

    Its models embed and say nothing, so this is for people who look at tokens.
    """
    return (token[len(_WITHIN_A_WORD) :] if token.startswith(_WITHIN_A_WORD) else f" {token}").encode()


def _byte_level(token: str) -> bytes:
    try:
        return token.translate(_LATIN1_OF_LETTER).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _byte_level_alphabet() -> dict[int, int]:
    """Letter that stands for a byte, as code point, to the byte: GPT-2's ``bytes_to_unicode``, turned round.

    Printable bytes stand for themselves; the others, in order, for the code points from 256.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {value: value for value in printable} | {256 + n: value for n, value in enumerate(others)}


_LETTERS: Final = _byte_level_alphabet()
_NOT_A_LETTER: Final = 0xFFFF
_LATIN1_OF_LETTER: Final = {value: _NOT_A_LETTER for value in range(256) if value not in _LETTERS} | _LETTERS

_BYTE_LEVEL: Final = Spelling(_byte_level, str.encode)
_METASPACE: Final = Spelling(_metaspace, _metaspace)
_WORD_PIECE: Final = Spelling(_word_piece, str.encode)
_GGUF_SPELLINGS: Final = {"gpt2": _BYTE_LEVEL, "llama": _METASPACE, "t5": _METASPACE}
