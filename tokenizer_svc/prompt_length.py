"""Refuses prompts that are too long for the model, before they are encoded where the vocabulary allows that.

Encoding megabytes takes seconds and gigabytes of memory. A token stands for a maximum number of bytes; a text of more
bytes than all tokens of the context can stand for is refused without encoding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from modelfiles.token_spelling import byte_alphabet, byte_fallback_tokens
from svclib.errors import ContextLengthExceeded

_COMPOSED_BYTES: Final = 4
"""NFC and NFKC turn at most this many bytes into one: U+1D43A, four bytes, becomes ``G``."""
_UNKNOWN_BYTES: Final = 4
"""An unknown character, of up to this many bytes, may become one token of any spelling."""
_NEVER_IN_TEXT: Final = bytes((0xC0, 0xC1, *range(0xF5, 0x100)))
"""Bytes that never occur in UTF-8."""
_KEEPING: Final = frozenset({"ByteLevel", "Metaspace", "Digits", "UnicodeScripts"})
"""Pre-tokenizers that keep all text."""
_SPLITTING: Final = frozenset({"Split", "Punctuation"})
"""Pre-tokenizers that drop the text they split at if their behaviour is ``Removed``."""


class PromptLength:
    """Knows the maximum bytes of text per token of a vocabulary, if there is a maximum."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._widest = widest_token(tokenizer)

    def check_text(self, marked: str, mark: str, max_tokens: int | None) -> None:
        """Raises ``ContextLengthExceeded`` if the text, without its marks, must be longer than ``max_tokens``."""
        if max_tokens is None or self._widest is None:
            return
        fewest = self._widest.fewest_tokens(marked, mark)
        if fewest > max_tokens:
            _refuse(f"at least {fewest}", max_tokens)

    def check(self, num_tokens: int, max_tokens: int | None) -> None:
        """Raises ``ContextLengthExceeded`` if there are more than ``max_tokens``."""
        if max_tokens is not None and num_tokens > max_tokens:
            _refuse(str(num_tokens), max_tokens)


def _refuse(length: str, max_tokens: int) -> None:
    raise ContextLengthExceeded(
        f"the messages are {length} tokens long and the model's context has {max_tokens + 1}, "
        "of which at least one must be left for the answer",
        param="messages",
    )


@dataclass(frozen=True, slots=True)
class WidestToken:
    """``num_bytes``: the maximum bytes of text that one token stands for, except bytes that need no token.

    Bytes that need no token are the ``lost`` ones, which the vocabulary does not have, and with ``takes_spaces`` white
    space, because some added tokens strip any amount of white space next to them.
    """

    num_bytes: int
    lost: bytes
    takes_spaces: bool

    def fewest_tokens(self, text: str, without: str = "") -> int:
        """A lower bound of a text's number of tokens, not counting the ASCII characters in ``without``."""
        if self.takes_spaces:
            text = "".join(text.split())
        counted = text.encode().translate(None, self.lost + without.encode())
        return -(-len(counted) // self.num_bytes)


def widest_token(tokenizer: Tokenizer) -> WidestToken | None:
    """None if one token may stand for any amount of text, or if that is unknown."""
    normalizer, pre_tokenizer = _state(tokenizer.normalizer), _state(tokenizer.pre_tokenizer)
    shrinking, lost = _shrinking(normalizer), _lost(tokenizer.model, pre_tokenizer)
    if shrinking is None or lost is None or (normalizer and lost) or not _keeps_all(pre_tokenizer):
        return None
    added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
    is_byte_level = _is_byte_level(pre_tokenizer)
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    widths = [len(token) if is_byte_level else len(token.encode()) for token in vocabulary]
    widths += [len(text.encode()) for token in added.values() for text in _forms(tokenizer, token)]
    takes_spaces = any(token.lstrip or token.rstrip for token in added.values())
    return WidestToken(shrinking * max(_UNKNOWN_BYTES, *widths), lost, takes_spaces)


def _state(component: Any) -> dict[str, Any] | None:
    """A component of a tokenizer as in tokenizer.json."""
    state: dict[str, Any] | None = None if component is None else json.loads(component.__getstate__())
    return state


def _parts(state: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """The steps of a component, with sequences flattened."""
    if state is None:
        return []
    if state["type"] == "Sequence":
        return [part for inner in state[name] for part in _parts(inner, name)]
    return [state]


def _is_byte_level(pre_tokenizer: dict[str, Any] | None) -> bool:
    return any(part["type"] == "ByteLevel" for part in _parts(pre_tokenizer, "pretokenizers"))


def _shrinking(normalizer: dict[str, Any] | None) -> int | None:
    """Maximum number of bytes of text that normalization turns into one byte; None: unlimited."""
    product = 1
    for part in _parts(normalizer, "normalizers"):
        match part:
            case {"type": "Prepend"}:
                pass
            case {"type": "NFC" | "NFKC"}:
                product *= _COMPOSED_BYTES
            case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)} if content:
                product *= max(1, -(-len(pattern.encode()) // len(content.encode())))
            case _:
                return None
    return product


def _keeps_all(pre_tokenizer: dict[str, Any] | None) -> bool:
    return all(
        part["type"] in _KEEPING or (part["type"] in _SPLITTING and part["behavior"] != "Removed")
        for part in _parts(pre_tokenizer, "pretokenizers")
    )


def _lost(model: Any, pre_tokenizer: dict[str, Any] | None) -> bytes | None:
    """The bytes that the model drops. None: one unknown token may stand for any number of characters."""
    if not isinstance(model, BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    if _is_byte_level(pre_tokenizer):
        missing = (byte for letter, byte in byte_alphabet().items() if model.token_to_id(letter) is None)
        return bytes(byte for byte in missing if byte not in _NEVER_IN_TEXT)
    falls_back = model.byte_fallback and None not in map(model.token_to_id, byte_fallback_tokens())
    return b"" if falls_back or (model.unk_token is not None and not model.fuse_unk) else None


def _forms(tokenizer: Tokenizer, token: AddedToken) -> tuple[str, str]:
    """The spellings that match an added token: as it is, or normalised like the text."""
    normalizer = tokenizer.normalizer
    return token.content, normalizer.normalize_str(token.content) if normalizer else token.content
