"""Encodes text as plain text, even where it spells control tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tokenizers import AddedToken, Encoding, Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer

_FIRST: Final = "first"
_NEVER: Final = "never"


class PlainText:
    """A tokenizer without its control tokens; shares its vocabulary with the full tokenizer."""

    def __init__(self, full: Tokenizer, controls: Mapping[str, int], *, at_start: bool) -> None:
        """``controls`` are spellings and ids. With ``at_start``, texts get the space before the first word, if any."""
        self._control_ids = frozenset(controls.values())
        self._spellings = re.compile(f"({'|'.join(map(re.escape, controls))})") if controls else re.compile("(?!)")
        self._tokenizer = Tokenizer(full.model)
        if full.normalizer is not None:
            self._tokenizer.normalizer = full.normalizer
        if full.pre_tokenizer is not None:
            self._tokenizer.pre_tokenizer = full.pre_tokenizer if at_start else _inside(full.pre_tokenizer)
        if full.post_processor is not None:
            self._tokenizer.post_processor = full.post_processor
        self._ids = self._add_tokens(full, controls)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text. Only ``add_special_tokens`` adds control tokens, around the text."""
        encoding = self._encoding(text, add_special_tokens)
        ids = self._right_ids(encoding)
        if not self._became_control(ids, encoding):
            return ids
        around = self._encoding("", add_special_tokens).ids
        leading = next((i for i, added in enumerate(encoding.special_tokens_mask) if not added), 0)
        return [*around[:leading], *self._spell_out(text), *around[leading:]]

    def _add_tokens(self, full: Tokenizer, controls: Mapping[str, int]) -> dict[int, int]:
        """Add the added tokens that are not control tokens. Returns a map from their ids here to the real ids."""
        added: dict[int, AddedToken] = full.get_added_tokens_decoder()
        self._tokenizer.add_tokens([token for _, token in sorted(added.items()) if token.content not in controls])
        pairs = ((self._tokenizer.token_to_id(token.content), token_id) for token_id, token in added.items())
        return {here: there for here, there in pairs if here is not None and here != there}

    def _encoding(self, text: str, add_special_tokens: bool = False) -> Encoding:
        """Without offsets. A batch for the reason in ``Encoder``."""
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return encoding

    def _right_ids(self, encoding: Encoding) -> list[int]:
        return [self._ids.get(token_id, token_id) for token_id in encoding.ids]

    def _became_control(self, ids: list[int], encoding: Encoding) -> bool:
        """Whether one of the ids is a control token inside the text."""
        if self._control_ids.isdisjoint(ids):
            return False
        pairs = zip(ids, encoding.special_tokens_mask, strict=True)
        return any(token_id in self._control_ids and not added for token_id, added in pairs)

    def _spell_out(self, text: str) -> list[int]:
        """For a vocabulary that merges plain text into control tokens: encode such spellings character by character."""
        parts = self._spellings.split(text)
        ids = self._encode_all(piece for i, part in enumerate(parts) for piece in (part if i % 2 else (part,)))
        # If only normalization made the spelling, its place is unknown: encode the whole text by characters.
        return ids if self._control_ids.isdisjoint(ids) else self._encode_all(text)

    def _encode_all(self, pieces: Iterable[str]) -> list[int]:
        encodings = (self._encoding(piece) for piece in pieces if piece)
        return [token_id for encoding in encodings for token_id in self._right_ids(encoding)]


def _inside(pre_tokenizer: PreTokenizer) -> PreTokenizer:
    """The pre-tokenizer for text inside a longer one: without the space before the first word."""
    state = json.loads(pre_tokenizer.__getstate__())
    holder = {"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": _without_first_space(state)}
    inside: PreTokenizer = Tokenizer.from_str(json.dumps(holder)).pre_tokenizer
    return inside


def _without_first_space(state: Any) -> Any:
    if isinstance(state, dict):
        return {
            name: _NEVER if name == "prepend_scheme" and value == _FIRST else _without_first_space(value)
            for name, value in state.items()
        }
    if isinstance(state, list):
        return [_without_first_space(item) for item in state]
    return state
