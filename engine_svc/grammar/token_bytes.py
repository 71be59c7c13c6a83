"""The bytes of each token, from the tokenizer beside a model's weights: what a mask is made over.

Formats: ``tokenizer.json`` of Hugging Face's tokenizers, the ``tokenizer.ggml`` metadata of GGUF. Tokens are spelled in
GPT-2's byte alphabet (``bytes_to_unicode``), or in sentencepiece's, with U+2581 for a space and ``<0x0A>`` for a byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from protos import simulated
from svclib.gguf_metadata import GgufError, read_metadata

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK: Final = "\u2581"

_GGUF_MODEL: Final = "tokenizer.ggml.model"
_GGUF_TOKENS: Final = "tokenizer.ggml.tokens"
_GGUF_TYPES: Final = "tokenizer.ggml.token_type"
_GGUF_SPECIAL: Final = frozenset({2, 3, 5})
"""Token types UNKNOWN, CONTROL and UNUSED: never text."""
_GGUF_USER_DEFINED: Final = 4


class Spelling(NamedTuple):
    """How a file writes tokens: functions from what is written to the bytes it stands for."""

    model_token: Callable[[str], bytes]
    added_token: Callable[[str], bytes]


class VocabularyError(Exception):
    """The bytes of the tokens cannot be known; the message says why."""


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """``spelled`` holds the bytes of each id, special tokens spelled out; nothing for ids that no token has."""

    spelled: tuple[bytes, ...]
    special: frozenset[int]

    @classmethod
    def of(cls, tokens: Mapping[int, bytes], special: frozenset[int]) -> TokenBytes:
        """A table up to the greatest id in ``tokens``."""
        return cls(tuple(tokens.get(n, b"") for n in range(max(tokens, default=-1) + 1)), special)


def simulated_tokens() -> TokenBytes:
    """One token for each byte, then the control tokens."""
    tokens = {value: bytes([value]) for value in range(simulated.NUM_BYTES)}
    control = {simulated.NUM_BYTES + n: text.encode() for n, text in enumerate(simulated.CONTROL_TOKENS)}
    return TokenBytes.of(tokens | control, frozenset(control))


def read_token_bytes(path: Path) -> TokenBytes:
    """From a folder with ``tokenizer.json``, or a GGUF file. Raises ``VocabularyError``."""
    return _from_folder(path) if path.is_dir() else _from_gguf(path)


def _from_folder(folder: Path) -> TokenBytes:
    description, config = _read(folder / "tokenizer.json"), folder / "tokenizer_config.json"
    try:
        added = dict(_added_tokens(description, _read(config) if config.is_file() else {}))
        spelling = _spelling(description)
        tokens = {token_id: spelling.model_token(token) for token, token_id in _model_tokens(description["model"])}
        tokens |= {token_id: spelling.added_token(token["content"]) for token_id, token in added.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VocabularyError(f"tokenizer.json is not in the usual format: {error!r}") from error
    return TokenBytes.of(tokens, frozenset(token_id for token_id, token in added.items() if token.get("special")))


def _from_gguf(path: Path) -> TokenBytes:
    try:
        metadata: dict[str, Any] = dict(read_metadata(path, (_GGUF_MODEL, _GGUF_TOKENS, _GGUF_TYPES)))
    except (OSError, GgufError) as error:
        raise VocabularyError(f"cannot read {path}: {error}") from error
    spelling = _GGUF_SPELLINGS.get(metadata.get(_GGUF_MODEL, ""))
    if spelling is None or _GGUF_TOKENS not in metadata:
        raise VocabularyError(f"{path} has a vocabulary of kind {metadata.get(_GGUF_MODEL)!r}, which is not supported")
    kinds = dict(enumerate(metadata.get(_GGUF_TYPES, ())))
    special = frozenset(n for n, kind in kinds.items() if kind in _GGUF_SPECIAL)
    added = special | {n for n, kind in kinds.items() if kind == _GGUF_USER_DEFINED}
    tokens = {
        n: spelling.added_token(token) if n in added else spelling.model_token(token)
        for n, token in enumerate(metadata[_GGUF_TOKENS])
    }
    return TokenBytes.of(tokens, special)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise VocabularyError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise VocabularyError(f"{path} holds no JSON object")
    return content


def _spelling(description: dict[str, Any]) -> Spelling:
    """How the tokens are written, found from what the tokenizer would do to decode them."""
    decoder = description.get("decoder") or {}
    steps = decoder.get("decoders", [decoder])
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return _BYTE_LEVEL
    if kinds & {"ByteFallback", "Metaspace"} or any(step.get("pattern") == {"String": _SPACE_MARK} for step in steps):
        return _METASPACE
    raise VocabularyError(f"a tokenizer with decoder {decoder.get('type')!r} is not supported")


def _model_tokens(model: dict[str, Any]) -> list[tuple[str, int]]:
    """Tokens and ids; a Unigram model lists ``[token, score]`` in the order of the ids."""
    vocab = model["vocab"]
    return list(vocab.items()) if isinstance(vocab, dict) else [(token, n) for n, (token, _) in enumerate(vocab)]


def _added_tokens(description: dict[str, Any], config: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Added tokens in the order in which they apply: the configuration has the last word."""
    yield from ((int(added["id"]), added) for added in description.get("added_tokens", ()))
    yield from ((int(token_id), added) for token_id, added in config.get("added_tokens_decoder", {}).items())


def _metaspace(token: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace(_SPACE_MARK, " ").encode()


def _byte_level(token: str) -> bytes:
    try:
        return token.translate(_LATIN1_OF_LETTER).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _byte_level_alphabet() -> dict[int, int]:
    """Letter that stands for a byte, as code point, to the byte.

    Printable bytes stand for themselves; the others, in order, for the code points from 256.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {value: value for value in printable} | {256 + n: value for n, value in enumerate(others)}


_LETTERS: Final = _byte_level_alphabet()
_NOT_A_LETTER: Final = 0xFFFF
_LATIN1_OF_LETTER: Final = {value: _NOT_A_LETTER for value in range(256) if value not in _LETTERS} | _LETTERS

_BYTE_LEVEL: Final = Spelling(_byte_level, str.encode)
_METASPACE: Final = Spelling(_metaspace, _metaspace)
_GGUF_SPELLINGS: Final = {"gpt2": _BYTE_LEVEL, "llama": _METASPACE, "t5": _METASPACE}
