"""How tokenizers write the bytes of their tokens.

Formats: ``tokenizer.json`` of Hugging Face's tokenizers, the ``tokenizer.ggml`` metadata of GGUF. Tokens are spelled in
GPT-2's byte alphabet (``bytes_to_unicode``), in sentencepiece's, with U+2581 for a space and ``<0x0A>`` for a byte, or
in WordPiece's. Whoever reads a vocabulary, the one to say bytes as text and the other to mask them, reads it by these.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WITHIN_A_WORD: Final = "##"
_SPACE_MARK: Final = "\u2581"


class Spelling(NamedTuple):
    """How a file writes tokens: functions from what is written to the bytes it stands for."""

    model_token: Callable[[str], bytes]
    added_token: Callable[[str], bytes]


def spelling_of(description: dict[str, Any]) -> Spelling | None:
    """How the tokens of a ``tokenizer.json`` are written, found from what it would do to decode them; None: unknown."""
    decoder = description.get("decoder") or {}
    steps = decoder.get("decoders", [decoder])
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return BYTE_LEVEL
    if kinds & {"ByteFallback", "Metaspace"} or any(step.get("pattern") == {"String": _SPACE_MARK} for step in steps):
        return METASPACE
    return WORD_PIECE if "WordPiece" in kinds else None


def model_tokens(model: dict[str, Any]) -> list[tuple[str, int]]:
    """Tokens and ids; a Unigram model lists ``[token, score]`` in the order of the ids."""
    vocab = model["vocab"]
    return list(vocab.items()) if isinstance(vocab, dict) else [(token, n) for n, (token, _) in enumerate(vocab)]


def added_tokens(description: dict[str, Any], config: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Added tokens in the order in which they apply: the configuration has the last word."""
    own = [(int(added["id"]), added) for added in description.get("added_tokens", ())]
    configured = [(int(token_id), added) for token_id, added in config.get("added_tokens_decoder", {}).items()]
    return own + configured


def _metaspace(token: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace(_SPACE_MARK, " ").encode()


def _word_piece(token: str) -> bytes:
    """Words with a space before each, in place of the spaces that such a vocabulary has lost.

    Its models embed and say nothing, so this is for people who look at tokens.
    """
    return (token[len(_WITHIN_A_WORD) :] if token.startswith(_WITHIN_A_WORD) else f" {token}").encode()


def _byte_level(token: str) -> bytes:
    try:
        return token.translate(_LATIN1_OF_LETTER).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _byte_level_alphabet() -> dict[int, int]:
    """Letter that stands for a byte, as code point, to the byte: GPT-2's ``bytes_to_unicode``, turned round.

    Printable bytes stand for themselves; the others, in order, for the code points from 256.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {value: value for value in printable} | {256 + n: value for n, value in enumerate(others)}


_LETTERS: Final = _byte_level_alphabet()
_NOT_A_LETTER: Final = 0xFFFF
_LATIN1_OF_LETTER: Final = {value: _NOT_A_LETTER for value in range(256) if value not in _LETTERS} | _LETTERS

BYTE_LEVEL: Final = Spelling(_byte_level, str.encode)
METASPACE: Final = Spelling(_metaspace, _metaspace)
WORD_PIECE: Final = Spelling(_word_piece, str.encode)
GGUF_SPELLINGS: Final = {"gpt2": BYTE_LEVEL, "llama": METASPACE, "t5": METASPACE}
