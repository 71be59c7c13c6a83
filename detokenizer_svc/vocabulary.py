"""What each token id stands for: its bytes, and whether it is a special token. Knows no file formats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from modelfiles.decoder_steps import TextStep
from modelfiles.token_table import TokenTable
from modelfiles.vocabulary_hash import UNKNOWN


class UnknownToken(Exception):
    """A token id outside the vocabulary: model and vocabulary do not belong together."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """An immutable table, shared by all choices."""

    bytes_by_id: tuple[bytes, ...]
    """Bytes of each token, special tokens spelled out; empty for ids that no token has."""
    text_by_id: tuple[bytes, ...]
    """The same, with nothing for special tokens."""
    special: Mapping[int, str]
    """Spelling of each special token."""
    first: Mapping[int, bytes] = field(default_factory=dict)
    """Bytes of those tokens that are others where they begin a text."""
    text_steps: tuple[TextStep, ...] = ()
    """What is done to the text of all tokens together."""
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
        """A table of the ``tokens``, of which those with an id in ``special`` are special."""
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
        """Of the tokens that a model's files hold."""
        vocabulary = cls.of(
            dict(enumerate(table.spelled)), special=table.special, first=table.first, text_steps=table.text_steps
        )
        return replace(vocabulary, hash=table.vocabulary_hash())

    def __len__(self) -> int:
        """Number of token ids; every id is below it."""
        return len(self.bytes_by_id)

    def special_ids(self, spellings: Collection[str]) -> dict[int, str]:
        """Those special tokens that are spelled as one of ``spellings``."""
        return {token_id: spelling for token_id, spelling in self.special.items() if spelling in spellings}

    def special_within(self, texts: Collection[str]) -> set[str]:
        """Spellings of special tokens that stand in one of the ``texts``."""
        return {spelling for spelling in self.special.values() if spelling and any(spelling in text for text in texts)}

    def text_of(self, token_id: int) -> str:
        """A token alone as text: U+FFFD for bytes that are no character, special tokens spelled out."""
        return self.look_up(self.bytes_by_id, token_id).decode("utf-8", "replace")

    @staticmethod
    def look_up(table: Sequence[bytes], token_id: int) -> bytes:
        """One entry of a table. Raises ``UnknownToken``."""
        try:
            return table[token_id]
        except IndexError:
            raise UnknownToken(f"token id {token_id} is outside the vocabulary of {len(table)}") from None
