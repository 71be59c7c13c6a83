"""Finds the control tokens of a vocabulary in a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE


def control_spellings(tokenizer: Tokenizer, template: str) -> frozenset[str]:
    """Spellings of the control tokens: special tokens, and other added tokens that the chat template writes.

    Other added tokens are text, such as runs of spaces or HTML tags.
    """
    added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
    return frozenset(
        token.content
        for token in added.values()
        if token.special or (token.content in template and not token.content.isspace())
    )


@dataclass(frozen=True, slots=True)
class Control:
    """A control token in a text: its id and its half-open range of characters."""

    id: int
    start: int
    end: int


class ControlTokens:
    """Finds control tokens by the rules of the tokenizer itself, without encoding the text between them."""

    def __init__(self, tokenizer: Tokenizer, spellings: Iterable[str]) -> None:
        added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
        wanted = frozenset(spellings)
        self.ids = {token.content: token_id for token_id, token in added.items() if token.content in wanted}
        self._spelling = {token_id: spelling for spelling, token_id in self.ids.items()}
        self._finder = Tokenizer(BPE())  # Has no vocabulary, so it yields only the added tokens.
        if tokenizer.normalizer is not None:
            self._finder.normalizer = tokenizer.normalizer
        self._finder.add_tokens([token for _, token in sorted(added.items())])
        self._real_id = {self._finder.token_to_id(spelling): token_id for spelling, token_id in self.ids.items()}

    def find(self, text: str) -> Iterator[Control]:
        """The control tokens of a text, in order. White space that a token strips is part of its range."""
        (found,) = self._finder.encode_batch([text], add_special_tokens=False)  # See ``Encoder`` for why it is a batch.
        for found_id, (start, end) in zip(found.ids, found.offsets, strict=True):
            if found_id in self._real_id:
                yield Control(self._real_id[found_id], start, end)

    def find_unmarked(self, marked: str, mark: str) -> Iterator[Control]:
        """The control tokens spelled without a mark, at their positions in the text without marks."""
        removed = position = 0
        for control in self.find(marked):
            removed += marked.count(mark, position, control.start)
            position = control.start
            # Text that equals a spelling only after normalization is text.
            if marked[control.start : control.end].strip() == self._spelling[control.id]:
                yield Control(control.id, control.start - removed, control.end - removed)
