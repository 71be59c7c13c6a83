"""The bytes of each token, from the tokenizer beside a model's weights; ``modelfiles.token_table`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from modelfiles.errors import ModelFileError
from modelfiles.token_table import TokenTable, read_token_table, simulated_table
from modelfiles.vocabulary_hash import UNKNOWN


class VocabularyError(Exception):
    """The bytes of the tokens are unknown; the message says why."""


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """``spelled`` has the bytes of each id, special tokens spelled out; empty for ids without a token."""

    spelled: tuple[bytes, ...]
    special: frozenset[int]
    vocabulary_hash: str = field(default=UNKNOWN, compare=False)
    """Of all tokens in the model's files, see ``modelfiles.vocabulary_hash``."""

    @classmethod
    def of(cls, tokens: Mapping[int, bytes], special: frozenset[int]) -> TokenBytes:
        """A table up to the greatest id in ``tokens``."""
        return cls(tuple(tokens.get(n, b"") for n in range(max(tokens, default=-1) + 1)), special)


def simulated_tokens() -> TokenBytes:
    """One token for each byte, then the control tokens."""
    return _maskable(simulated_table())


def read_token_bytes(path: Path) -> TokenBytes:
    """From a folder with ``tokenizer.json``, or a GGUF file. Raises ``VocabularyError``."""
    try:
        table = read_token_table(path)
    except ModelFileError as error:
        raise VocabularyError(str(error)) from error
    if not table.has_spaces:
        raise VocabularyError("a tokenizer with decoder 'WordPiece' is not supported")
    return _maskable(table)


def _maskable(table: TokenTable) -> TokenBytes:
    """Unused tokens are no text, like special ones."""
    return TokenBytes(table.spelled, table.special | table.unused, table.vocabulary_hash())
