"""The bytes of each token, from the tokenizer beside a model's weights: what a mask is made over.

How they are written stands in ``svclib.token_spelling``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from protos import simulated
from svclib.gguf_metadata import GgufError, read_metadata
from svclib.token_spelling import GGUF_SPELLINGS, WORD_PIECE, Spelling, added_tokens, model_tokens, spelling_of

_GGUF_MODEL: Final = "tokenizer.ggml.model"
_GGUF_TOKENS: Final = "tokenizer.ggml.tokens"
_GGUF_TYPES: Final = "tokenizer.ggml.token_type"
_GGUF_SPECIAL: Final = frozenset({2, 3, 5})
"""Token types UNKNOWN, CONTROL and UNUSED: never text."""
_GGUF_USER_DEFINED: Final = 4


class VocabularyError(Exception):
    """The bytes of the tokens cannot be known; the message says why."""


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """``spelled`` holds the bytes of each id, special tokens spelled out; nothing for ids that no token has."""

    spelled: tuple[bytes, ...]
    special: frozenset[int]

    @classmethod
    def of(cls, tokens: Mapping[int, bytes], special: frozenset[int]) -> TokenBytes:
        """A table up to the greatest id in ``tokens``."""
        return cls(tuple(tokens.get(n, b"") for n in range(max(tokens, default=-1) + 1)), special)


def simulated_tokens() -> TokenBytes:
    """One token for each byte, then the control tokens."""
    tokens = {value: bytes([value]) for value in range(simulated.NUM_BYTES)}
    control = {simulated.NUM_BYTES + n: text.encode() for n, text in enumerate(simulated.CONTROL_TOKENS)}
    return TokenBytes.of(tokens | control, frozenset(control))


def read_token_bytes(path: Path) -> TokenBytes:
    """From a folder with ``tokenizer.json``, or a GGUF file. Raises ``VocabularyError``."""
    return _from_folder(path) if path.is_dir() else _from_gguf(path)


def _from_folder(folder: Path) -> TokenBytes:
    description, config = _read(folder / "tokenizer.json"), folder / "tokenizer_config.json"
    try:
        added = dict(added_tokens(description, _read(config) if config.is_file() else {}))
        spelling = _spelling(description)
        tokens = {token_id: spelling.model_token(token) for token, token_id in model_tokens(description["model"])}
        tokens |= {token_id: spelling.added_token(token["content"]) for token_id, token in added.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VocabularyError(f"tokenizer.json is not in the usual format: {error!r}") from error
    return TokenBytes.of(tokens, frozenset(token_id for token_id, token in added.items() if token.get("special")))


def _from_gguf(path: Path) -> TokenBytes:
    try:
        metadata: dict[str, Any] = dict(read_metadata(path, (_GGUF_MODEL, _GGUF_TOKENS, _GGUF_TYPES)))
    except (OSError, GgufError) as error:
        raise VocabularyError(f"cannot read {path}: {error}") from error
    spelling = GGUF_SPELLINGS.get(metadata.get(_GGUF_MODEL, ""))
    if spelling is None or _GGUF_TOKENS not in metadata:
        raise VocabularyError(f"{path} has a vocabulary of kind {metadata.get(_GGUF_MODEL)!r}, which is not supported")
    kinds = dict(enumerate(metadata.get(_GGUF_TYPES, ())))
    special = frozenset(n for n, kind in kinds.items() if kind in _GGUF_SPECIAL)
    added = special | {n for n, kind in kinds.items() if kind == _GGUF_USER_DEFINED}
    tokens = {
        n: spelling.added_token(token) if n in added else spelling.model_token(token)
        for n, token in enumerate(metadata[_GGUF_TOKENS])
    }
    return TokenBytes.of(tokens, special)


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
    if spelling is None or spelling is WORD_PIECE:  # what WordPiece lost of the spaces cannot be masked
        raise VocabularyError(
            f"a tokenizer with decoder {(description.get('decoder') or {}).get('type')!r} is not supported"
        )
    return spelling
