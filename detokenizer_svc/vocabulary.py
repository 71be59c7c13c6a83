"""The bytes of each token id, and which tokens are special. Independent of file formats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from modelfiles.decoder_steps import TextStep
from modelfiles.token_table import TokenTable
from modelfiles.vocabulary_hash import UNKNOWN


class UnknownToken(Exception):
    """A token id outside the vocabulary: model and vocabulary do not match."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Immutable, shared by all choices."""

    bytes_by_id: tuple[bytes, ...]
    """Bytes of each token, special tokens spelled out; empty for ids that no token has."""
    text_by_id: tuple[bytes, ...]
    """The same, but empty for special tokens."""
    special: Mapping[int, str]
    """Spelling of each special token."""
    first: Mapping[int, bytes] = field(default_factory=dict)
    """Bytes of the tokens that have different bytes at the start of a text."""
    text_steps: tuple[TextStep, ...] = ()
    """Decoder steps that apply to the text of all tokens together."""
    hash: str = UNKNOWN
    """See ``modelfiles.vocabulary_hash``."""

    @classmethod
    def of(
        cls,
        tokens: Mapping[int, bytes],
        special: Collection[int] = (),
        first: Mapping[int, bytes] | None = None,
        text_steps: tuple[TextStep, ...] = (),
    ) -> Self:
        """From the bytes of ``tokens``; those with an id in ``special`` are special."""
        size = max(tokens, default=-1) + 1
        spelled = [tokens.get(token_id, b"") for token_id in range(size)]
        text = list(spelled)
        for token_id in special:
            text[token_id] = b""
        spelling = {token_id: spelled[token_id].decode("utf-8", "replace") for token_id in special}
        return cls(
            tuple(spelled), tuple(text), MappingProxyType(spelling), MappingProxyType(dict(first or {})), text_steps
        )

    @classmethod
    def of_table(cls, table: TokenTable) -> Self:
        """From the tokens in a model's files."""
        vocabulary = cls.of(
            dict(enumerate(table.spelled)), special=table.special, first=table.first, text_steps=table.text_steps
        )
        return replace(vocabulary, hash=table.vocabulary_hash())

    def __len__(self) -> int:
        """Number of token ids; every token id is smaller."""
        return len(self.bytes_by_id)

    def special_ids(self, spellings: Collection[str]) -> dict[int, str]:
        """The special tokens whose spelling is in ``spellings``."""
        return {token_id: spelling for token_id, spelling in self.special.items() if spelling in spellings}

    def special_within(self, texts: Collection[str]) -> set[str]:
        """Spellings of the special tokens that occur in one of the ``texts``."""
        return {spelling for spelling in self.special.values() if spelling and any(spelling in text for text in texts)}

    def text_of(self, token_id: int) -> str:
        """A single token as text: U+FFFD for invalid UTF-8, special tokens as they are spelled."""
        return self.look_up(self.bytes_by_id, token_id).decode("utf-8", "replace")

    @staticmethod
    def look_up(table: Sequence[bytes], token_id: int) -> bytes:
        """One entry of a table. Raises ``UnknownToken``."""
        try:
            return table[token_id]
        except IndexError:
            raise UnknownToken(f"token id {token_id} is outside the vocabulary of {len(table)}") from None
