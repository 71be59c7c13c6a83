"""Incremental detokenization: bytes are buffered until they are complete characters, then the decoder steps run.

Joined, the pieces equal ``bytes.decode("utf-8", errors="replace")`` of all bytes at once, with the vocabulary's
``text_steps`` applied. If the text continues the prompt's, its first word keeps its leading space.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from detokenizer_svc.deltas import Content, Item, Marker
from detokenizer_svc.positions import TokenPositions
from detokenizer_svc.text_steps import TextSteps
from detokenizer_svc.vocabulary import UnknownToken, Vocabulary

_REPLACEMENT: Final = "\ufffd"
_SURROGATE_BEGIN: Final = b"\xed\xa0"
_SURROGATE_END: Final = b"\xee"


class Utf8Decoder:
    """Bytes in, characters out; holds back only an incomplete character.

    ``before`` are the bytes before the first one. An incomplete character at their end is completed if the following
    bytes fit, else dropped.
    """

    def __init__(self, before: bytes = b"") -> None:
        self.pending = _decode(before)[1]
        self._inherited = bool(self.pending)

    def decode(self, data: bytes) -> str:
        """The characters that are complete now."""
        if self._inherited and data:
            self._resolve_inherited(data[:1])
        if self.pending:
            data = self.pending + data
        text, self.pending = _decode(data)
        return text

    def finish(self) -> str:
        """The rest, once no more bytes come."""
        rest = b"" if self._inherited else self.pending
        self.pending = b""
        return rest.decode("utf-8", "replace")

    def _resolve_inherited(self, first: bytes) -> None:
        self._inherited = False
        if _decode(self.pending + first)[0].startswith(_REPLACEMENT):
            self.pending = b""


class TokenDecoder:
    """Token ids in, text out, and a ``Marker`` for each special token whose spelling is in ``markers``; a hidden marker
    if it is only in ``hidden``.

    ``positions`` records where each token ends in the text; None: not recorded.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        skip_special_tokens: bool = True,
        prompt_tail_ids: Sequence[int] = (),
        markers: Collection[str] = (),
        hidden: Collection[str] = (),
        positions: TokenPositions | None = None,
    ) -> None:
        self._table = vocabulary.text_by_id if skip_special_tokens else vocabulary.bytes_by_id
        seen = vocabulary.special_ids({*markers, *hidden}) if markers or hidden else {}
        self._markers = {token_id: Marker(spelling, spelling not in markers) for token_id, spelling in seen.items()}
        self._positions = positions
        before = [vocabulary.look_up(vocabulary.bytes_by_id, token_id) for token_id in prompt_tail_ids]
        self._utf8 = Utf8Decoder(b"".join(before))
        self._skipped: Mapping[int, str] = vocabulary.special if skip_special_tokens else {}
        self._first: Mapping[int, bytes] = {} if prompt_tail_ids else vocabulary.first
        self._steps = TextSteps(vocabulary.text_steps, at_start=not prompt_tail_ids) if vocabulary.text_steps else None

    def feed(self, token_ids: Sequence[int]) -> list[Item]:
        """The text that is complete now. Raises ``UnknownToken``."""
        if self._markers and not self._markers.keys().isdisjoint(token_ids):
            return self._feed_with_markers(token_ids)
        return _as_items(self._text(token_ids))

    def finish(self) -> list[Item]:
        """The text of the bytes that were held back."""
        return _as_items(self._rest())

    def _rest(self) -> str:
        text = self._utf8.finish()
        return text if self._steps is None else self._steps.feed(text) + self._steps.finish()

    def _feed_with_markers(self, token_ids: Sequence[int]) -> list[Item]:
        items: list[Item] = []
        for token_id in token_ids:
            marker = self._markers.get(token_id)
            items += _as_items(self._text((token_id,))) if marker is None else self._marker(marker)
        return items

    def _marker(self, marker: Marker) -> list[Item]:
        rest = self._rest()
        if self._positions is not None:
            self._positions.add(len(rest) + len(marker.spelling))
        return [*_as_items(rest), marker]

    def _text(self, token_ids: Sequence[int]) -> str:
        table = self._table
        try:
            pieces = [table[token_id] for token_id in token_ids]
        except IndexError:
            raise UnknownToken(f"token id {max(token_ids)} is outside the vocabulary of {len(table)}") from None
        if self._first:
            self._begin(token_ids, pieces)
        if self._positions is None:
            return self._characters(b"".join(pieces))
        return "".join([self._counted(piece, self._positions) for piece in pieces])

    def _begin(self, token_ids: Sequence[int], pieces: list[bytes]) -> None:
        """If the first token of the text is among these, give it the bytes that it has at the start of a text."""
        for number, token_id in enumerate(token_ids):
            if token_id not in self._skipped:
                pieces[number] = self._first.get(token_id, pieces[number])
                self._first = {}
                return

    def _characters(self, data: bytes) -> str:
        text = self._utf8.decode(data)
        return text if self._steps is None else self._steps.feed(text)

    def _counted(self, data: bytes, positions: TokenPositions) -> str:
        text = self._characters(data)
        positions.add(len(text), unfinished=bool(self._utf8.pending))
        return text


def _decode(data: bytes) -> tuple[str, bytes]:
    """The complete characters, and the bytes of an incomplete one at the end."""
    text, used = utf_8_decode(data, "replace", False)
    begun = data[used:]
    if begun and _SURROGATE_BEGIN <= begun < _SURROGATE_END:
        # Python treats this as the start of a character, although only surrogates start so.
        return text + begun.decode("utf-8", "replace"), b""
    return text, begun


def _as_items(text: str) -> list[Item]:
    return [Content(text)] if text else []
