"""Text to token ids and back (hop 4). Knows nothing of conversations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer

from svclib.errors import InvalidRequest
from tokenizer_svc.control_tokens import Control, ControlTokens
from tokenizer_svc.plain_text import PlainText


class Encoder:
    """A tokenizer that can also be told to take control tokens for text.

    May be used from several threads at once; encoding and decoding release the GIL. That takes the methods for
    batches: those for one text hold it for the whole call.
    """

    def __init__(self, tokenizer: Tokenizer, controls: Iterable[str]) -> None:
        """``controls`` are the spellings of the added tokens that client text must not become."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._controls = ControlTokens(tokenizer, controls)
        self._plain = PlainText(tokenizer, self._controls.ids, at_start=True)
        self._plain_inside = PlainText(tokenizer, self._controls.ids, at_start=False)
        self.vocab_size: int = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def encode_prompt(self, marked: str, mark: str) -> tuple[list[int], str]:
        """Ids and text of a rendered prompt.

        A control spelling without ``mark`` is the template's and becomes its token; one with it is the client's and
        stays text. Where the client spelled none, the ids are those of the plain tokenizer, exactly.
        """
        text = marked.replace(mark, "")
        if len(text) < len(marked):
            controls = list(self._controls.find_unmarked(marked, mark))
            if controls != list(self._controls.find(text)):
                return list(self.encode_around(text, controls)), text
        return self._encode(text, add_special_tokens=False), text

    def encode(self, text: str, *, add_special_tokens: bool, parse_special_tokens: bool) -> list[int]:
        """Ids of a text, with or without reading control tokens' spellings as those tokens."""
        if parse_special_tokens:
            return self._encode(text, add_special_tokens)
        return self._plain.encode(text, add_special_tokens=add_special_tokens)

    def encode_inside(self, text: str, *, parse_special_tokens: bool) -> list[int]:
        """Ids of a text that does not start the whole: without the space before a first word."""
        controls = list(self._controls.find(text)) if parse_special_tokens else []
        return list(self.encode_around(text, controls, at_start=False))

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """The text of some ids. Raises ``InvalidRequest`` for one that is no token."""
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
        """Ids of a text in which only the given control tokens, in order, count as such."""
        position, plain = 0, self._plain if at_start else self._plain_inside
        for control in controls:
            yield from plain.encode(text[position : control.start])
            yield control.id
            position, plain = control.end, self._plain_inside
        yield from plain.encode(text[position:])
