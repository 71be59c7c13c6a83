"""The vocabulary in the metadata of a GGUF file: tokens, their kinds and their roles.

Formats: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and llama.cpp's llama-vocab.cpp for the
defaults of missing keys. Tokenizer, detokenizer and engine all read vocabularies here, so that they agree on every
token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Self

from modelfiles.errors import ModelFileError
from modelfiles.gguf_metadata import read_metadata

_PREFIX: Final = "tokenizer.ggml."
MODEL_KEY: Final = _PREFIX + "model"


class TokenKind(IntEnum):
    """Values of ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL_KINDS: Final = (TokenKind.UNKNOWN, TokenKind.CONTROL)
ADDED_KINDS: Final = (*SPECIAL_KINDS, TokenKind.USER_DEFINED)
"""Kinds that are found in a text before pre-tokenization, and are spelled as they are."""

_ROLES: Final = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unk": "unknown_token_id",
    "pad": "padding_token_id",
}
_CONTROLLING: Final = ("bos", "eos", "eot", "eom")
"""Roles that make a token a control token even if the file calls it normal."""
_ENDING: Final = ("eos", "eot", "eom")
_ASSUMED: Final = {"llama": {"bos": 1, "eos": 2, "unk": 0}}
"""Default ids of a file without them, by ``tokenizer.ggml.model``."""

VOCABULARY_KEYS: Final = frozenset(
    {"general.architecture", *(_PREFIX + key for key in ("model", "tokens", "token_type", *_ROLES.values()))}
)


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """Spellings and kinds of the tokens, both by id."""

    model: str | None
    """``tokenizer.ggml.model``."""
    architecture: str
    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    roles: Mapping[str, int]
    """Ids of bos, eos, eot, eom, unk and pad, as far as the file has them."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """From metadata with the ``VOCABULARY_KEYS``. Raises ``ModelFileError`` if the vocabulary is incomplete."""
        model = metadata.get(MODEL_KEY)
        written = metadata.get(_PREFIX + "tokens")
        if not isinstance(written, list):
            raise ModelFileError("tokenizer.ggml.tokens is missing")
        tokens = tuple(token or f"[EMPTY_{n}]" for n, token in enumerate(written))
        kinds = _kinds(metadata.get(_PREFIX + "token_type"), len(tokens))
        roles = _roles(metadata, model, kinds)
        for role in _CONTROLLING:
            if role in roles and kinds[roles[role]] not in ADDED_KINDS:
                kinds[roles[role]] = TokenKind.CONTROL
        return cls(model, str(metadata.get("general.architecture", "")), tokens, tuple(kinds), roles)

    @property
    def turn_ends(self) -> tuple[int, ...]:
        """Ids of the tokens that end a turn, by the file."""
        return tuple(dict.fromkeys(self.roles[role] for role in _ENDING if role in self.roles))

    def ids_of_kinds(self, kinds: tuple[int, ...]) -> list[int]:
        return [token_id for token_id, kind in enumerate(self.kinds) if kind in kinds]


def turn_ends_in_metadata(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """The same from metadata that need not have a vocabulary."""
    keys = (_PREFIX + _ROLES[role] for role in _ENDING)
    return tuple(dict.fromkeys(metadata[key] for key in keys if key in metadata))


def read_vocabulary(path: Path) -> GgufVocabulary:
    """Raises ``ModelFileError``, or ``OSError`` if the file cannot be opened."""
    try:
        return GgufVocabulary.of(read_metadata(path, VOCABULARY_KEYS))
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None


def _kinds(given: Any, size: int) -> list[int]:
    if given is None:
        return [TokenKind.NORMAL] * size
    if not isinstance(given, list) or len(given) < size:
        raise ModelFileError(f"{_PREFIX}token_type has fewer items than there are tokens")
    return given[:size]


def _roles(metadata: Mapping[str, Any], model: str | None, kinds: list[int]) -> dict[str, int]:
    roles = {
        role: token_id
        for role, token_id in _ASSUMED.get(model or "", {}).items()
        if token_id < len(kinds) and kinds[token_id] in SPECIAL_KINDS
    }
    given = {role: metadata[_PREFIX + key] for role, key in _ROLES.items() if _PREFIX + key in metadata}
    for role, token_id in given.items():
        if not isinstance(token_id, int) or not 0 <= token_id < len(kinds):
            raise ModelFileError(f"{_PREFIX}{_ROLES[role]} is {token_id}, but there are {len(kinds)} tokens")
    return roles | given
