"""Encodes bytes that need not be valid UTF-8: the joined bytes of the tokens are exactly these bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tokenizers import AddedToken, Tokenizer

from modelfiles.token_spelling import byte_alphabet, byte_fallback_tokens
from tokenizer_svc.encoder import Encoder

_FALLBACK: Final = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE: Final = "\u2581"


class NoSuchBytes(Exception):
    """The vocabulary has no tokens for these bytes."""


class ByteTokens:
    """Encodes bytes with a byte-level or byte-fallback vocabulary; with others, only bytes that are whole tokens."""

    def __init__(self, tokenizer: Tokenizer, encoder: Encoder) -> None:
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._alphabet = byte_alphabet() if "ByteLevel" in str(tokenizer.decoder) else {}
        added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
        self._added = {token_id: token.content.encode() for token_id, token in added.items()}
        letters = {byte: letter for letter, byte in self._alphabet.items()}
        names = letters or dict(enumerate(byte_fallback_tokens()))
        self._byte_ids = {byte: tokenizer.token_to_id(name) for byte, name in names.items()}

    def encode(self, raw: bytes, *, parse_special_tokens: bool) -> list[int]:
        """Ids of tokens whose joined bytes are ``raw``. Raises ``NoSuchBytes``."""
        ids: list[int] = []
        for piece in _pieces(raw):
            ids += self._text(piece, parse_special_tokens) if isinstance(piece, str) else self._bytes(piece)
        return ids

    def _text(self, text: str, parse_special_tokens: bool) -> list[int]:
        """Ids of a text; byte by byte if the vocabulary would change it, for example by a leading space."""
        ids = self._encoder.encode_inside(text, parse_special_tokens=parse_special_tokens)
        raw = text.encode()
        return ids if b"".join(map(self._bytes_of, ids)) == raw else self._bytes(raw)

    def _bytes(self, raw: bytes) -> list[int]:
        ids = [token_id for byte in raw if (token_id := self._byte_ids[byte]) is not None]
        if len(ids) < len(raw):
            raise NoSuchBytes
        return ids

    def _bytes_of(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id]
        token = self._tokenizer.id_to_token(token_id) or ""
        if self._alphabet.keys() >= set(token):
            return bytes(self._alphabet[character] for character in token)
        if match := _FALLBACK.fullmatch(token):
            return bytes.fromhex(match[1])
        return token.replace(_SPACE, " ").encode()


def _pieces(raw: bytes) -> Iterator[str | bytes]:
    """Valid UTF-8 as text, and invalid bytes between."""
    while raw:
        try:
            yield raw.decode()
            return
        except UnicodeDecodeError as error:
            if error.start:
                yield raw[: error.start].decode()
            yield raw[error.start : error.end]
            raw = raw[error.end :]
