"""How tokenizers spell the bytes of their tokens.

Formats: ``tokenizer.json`` of Hugging Face's tokenizers, the ``tokenizer.ggml`` metadata of GGUF. Tokens are spelled in
GPT-2's byte alphabet (``bytes_to_unicode``), as in sentencepiece with U+2581 for a space and ``<0x0A>`` for a byte, or
as in WordPiece. The detokenizer's text and the engine's grammar masks both use these spellings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from modelfiles.decoder_steps import (
    WORD_STEPS,
    StripText,
    TextStep,
    WordStep,
    flattened,
    named,
    text_step,
    word_step,
)
from modelfiles.errors import ModelFileError

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WITHIN_A_WORD: Final = "##"
_SPACE_MARK: Final = "\u2581"


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a file spells tokens: functions from spelling to bytes."""

    model_token: Callable[[str], bytes]
    added_token: Callable[[str], bytes]
    first_token: Callable[[str], bytes] | None = None
    """For the first token of a text, whose leading space some decoders drop; None: like other tokens."""
    text_steps: tuple[TextStep, ...] = ()
    """Decoder steps that apply to the text of all tokens together."""


def spelling_of(description: dict[str, Any]) -> Spelling:
    """The spelling of a ``tokenizer.json``, found from its decoder.

    Raises ``ModelFileError`` naming an unsupported step of the decoder.
    """
    steps = list(flattened(description.get("decoder") or {}))
    kinds = [step.get("type") for step in steps]
    if kinds == ["WordPiece"]:
        return WORD_PIECE
    if kinds[:1] == ["ByteLevel"]:
        after = tuple(text_step(step) for step in steps[1:] if step.get("type") != "Fuse")
        return replace(BYTE_LEVEL, text_steps=after)
    if not steps:
        raise ModelFileError("unsupported tokenizer: it has no decoder")
    return _word_spelling(steps)


def _word_spelling(steps: list[dict[str, Any]]) -> Spelling:
    """The spelling of words with marks. Steps after ``Fuse`` apply to the whole text.

    A byte token is its byte: steps after ``ByteFallback`` do not apply to characters that consist of byte tokens.
    """
    fused = next((n for n, step in enumerate(steps) if step.get("type") == "Fuse"), len(steps))
    if unknown := next((step for step in steps if step.get("type") not in WORD_STEPS), None):
        raise ModelFileError(f"unsupported decoder step {named(unknown)}")
    words = [word_step(step) for step in steps[:fused] if step.get("type") != "ByteFallback"]
    later = tuple(text_step(step) for step in steps[fused:] if step.get("type") not in ("Fuse", "ByteFallback"))
    has_first = any(step.get("type") == "Metaspace" for step in steps[:fused])
    spelled = partial(_spelled, words, is_first=False)
    return Spelling(spelled, spelled, partial(_spelled, words, is_first=True) if has_first else None, later)


def _spelled(steps: list[WordStep], token: str, *, is_first: bool) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    for step in steps:
        token = step(token, is_first)
    return token.encode()


def _metaspace(token: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace(_SPACE_MARK, " ").encode()


def _word_piece(token: str) -> bytes:
    """Words with a leading space each, because such a vocabulary does not keep spaces.

    Its models are embedding models, so this text is only for people who inspect tokens.
    """
    return (token[len(_WITHIN_A_WORD) :] if token.startswith(_WITHIN_A_WORD) else f" {token}").encode()


def _byte_level(token: str) -> bytes:
    try:
        return token.translate(_LATIN1_OF_LETTER).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def byte_alphabet() -> dict[str, int]:
    """The letters that stand for bytes in byte-level vocabularies: the inverse of GPT-2's ``bytes_to_unicode``.

    Printable bytes stand for themselves; the others, in order, for the code points from 256.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(256 + n): value for n, value in enumerate(others)}


def byte_fallback_tokens() -> list[str]:
    """The 256 byte tokens of byte-fallback vocabularies, as sentencepiece spells them."""
    return [f"<0x{value:02X}>" for value in range(256)]


_LETTERS: Final = {ord(letter): value for letter, value in byte_alphabet().items()}
_NOT_A_LETTER: Final = 0xFFFF
_LATIN1_OF_LETTER: Final = {value: _NOT_A_LETTER for value in range(256) if value not in _LETTERS} | _LETTERS

BYTE_LEVEL: Final = Spelling(_byte_level, str.encode)
METASPACE: Final = Spelling(_metaspace, _metaspace)
WORD_PIECE: Final = Spelling(_word_piece, str.encode)
GGUF_SPELLINGS: Final = {"gpt2": BYTE_LEVEL, "llama": METASPACE, "t5": METASPACE, "gemma4": METASPACE}
"""By ``tokenizer.ggml.model``."""
FIRST_SPACE: Final = StripText(" ", 1, 0)
"""Strips the space that such a vocabulary adds before the first word of a text."""
