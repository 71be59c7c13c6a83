"""Text to token ids and back (hop 4). Independent of conversations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer

from svclib.errors import InvalidRequest
from tokenizer_svc.control_tokens import Control, ControlTokens
from tokenizer_svc.plain_text import PlainText


class Encoder:
    """A tokenizer that can also encode the spellings of control tokens as plain text.

    Thread-safe; encoding and decoding release the GIL. They use the batch methods, because the methods for a single
    text hold the GIL.
    """

    def __init__(self, tokenizer: Tokenizer, controls: Iterable[str]) -> None:
        """``controls`` are the spellings of the added tokens that client text must never encode to."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._controls = ControlTokens(tokenizer, controls)
        self._plain = PlainText(tokenizer, self._controls.ids, at_start=True)
        self._plain_inside = PlainText(tokenizer, self._controls.ids, at_start=False)
        self.vocab_size: int = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def encode_prompt(self, marked: str, mark: str) -> tuple[list[int], str]:
        """Ids and text of a rendered prompt.

        A control spelling without ``mark`` is the template's and becomes its token; one with a ``mark`` is the client's
        and stays text. If the client spelled none, the ids are exactly those of the plain tokenizer.
        """
        text = marked.replace(mark, "")
        if len(text) < len(marked):
            controls = list(self._controls.find_unmarked(marked, mark))
            if controls != list(self._controls.find(text)):
                return list(self.encode_around(text, controls)), text
        return self._encode(text, add_special_tokens=False), text

    def encode(self, text: str, *, add_special_tokens: bool, parse_special_tokens: bool) -> list[int]:
        """Ids of a text. With ``parse_special_tokens``, spellings of control tokens become those tokens."""
        if parse_special_tokens:
            return self._encode(text, add_special_tokens)
        return self._plain.encode(text, add_special_tokens=add_special_tokens)

    def encode_inside(self, text: str, *, parse_special_tokens: bool) -> list[int]:
        """Ids of a text inside a longer one: without the space before the first word."""
        controls = list(self._controls.find(text)) if parse_special_tokens else []
        return list(self.encode_around(text, controls, at_start=False))

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """The text of token ids. Raises ``InvalidRequest`` for an id outside the vocabulary."""
        if max(ids, default=0) >= self.vocab_size:
            index = next(index for index, token_id in enumerate(ids) if token_id >= self.vocab_size)
            raise InvalidRequest(f"token ids must be below {self.vocab_size}", param=f"token_ids[{index}]")
        text: str
        (text,) = self._tokenizer.decode_batch([ids], skip_special_tokens=skip_special_tokens)
        return text

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def encode_around(self, text: str, controls: Iterable[Control], *, at_start: bool = True) -> Iterator[int]:
        """Ids of a text in which only the given control tokens, in order, become tokens."""
        position, plain = 0, self._plain if at_start else self._plain_inside
        for control in controls:
            yield from plain.encode(text[position : control.start])
            yield control.id
            position, plain = control.end, self._plain_inside
        yield from plain.encode(text[position:])
