"""The bytes of each token of a model, from its ``tokenizer.json`` or its GGUF file.

The detokenizer makes text of them and the engine makes masks over them; both read them here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from modelfiles.decoder_steps import TextStep
from modelfiles.errors import ModelFileError
from modelfiles.gguf_metadata import read_metadata
from modelfiles.gguf_vocabulary import ADDED_KINDS, MODEL_KEY, SPECIAL_KINDS, VOCABULARY_KEYS, GgufVocabulary, TokenKind
from modelfiles.lfs import check_not_pointer
from modelfiles.token_spelling import (
    FIRST_SPACE,
    GGUF_SPELLINGS,
    WORD_PIECE,
    added_tokens,
    model_tokens,
    spelling_of,
)
from protos import simulated

_ADD_SPACE_PREFIX = "tokenizer.ggml.add_space_prefix"


@dataclass(frozen=True, slots=True)
class TokenTable:
    """``spelled`` holds the bytes of each id, special tokens spelled out; nothing for ids that no token has."""

    spelled: tuple[bytes, ...]
    special: frozenset[int]
    unused: frozenset[int] = frozenset()
    """Tokens that the file says are never written."""
    first: Mapping[int, bytes] = field(default_factory=dict)
    """Bytes of those tokens that are others at the begin of a text."""
    text_steps: tuple[TextStep, ...] = ()
    """What is done to the text of all tokens together."""
    has_spaces: bool = True
    """Whether the spaces of a text can be told from its tokens; WordPiece has lost them."""

    @classmethod
    def of(cls, tokens: Mapping[int, bytes], special: Collection[int], **more: Any) -> Self:
        """A table up to the greatest id in ``tokens``."""
        size = max(tokens, default=-1) + 1
        return cls(tuple(tokens.get(n, b"") for n in range(size)), frozenset(special), **more)


def simulated_table() -> TokenTable:
    """One token for each byte, then the control tokens."""
    tokens = {value: bytes([value]) for value in range(simulated.NUM_BYTES)}
    control = {simulated.NUM_BYTES + n: text.encode() for n, text in enumerate(simulated.CONTROL_TOKENS)}
    return TokenTable.of(tokens | control, special=control)


def read_token_table(path: Path) -> TokenTable:
    """From a folder with ``tokenizer.json``, or a GGUF file. Raises ``ModelFileError``."""
    return _from_folder(path) if path.is_dir() else _from_gguf(path)


def table_of(description: dict[str, Any], config: dict[str, Any]) -> TokenTable:
    """From the contents of ``tokenizer.json`` and ``tokenizer_config.json``. Raises ``ModelFileError``."""
    spelling = spelling_of(description)
    try:
        written = {token_id: token for token, token_id in model_tokens(description["model"])}
        added = dict(added_tokens(description, config))
        contents = {token_id: token["content"] for token_id, token in added.items()}
        tokens = _mapped(written, spelling.model_token) | _mapped(contents, spelling.added_token)
        first = _mapped(written | contents, spelling.first_token) if spelling.first_token is not None else {}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"tokenizer.json is not in the usual format: {error!r}") from error
    return TokenTable.of(
        tokens,
        [token_id for token_id, token in added.items() if token.get("special")],
        first={token_id: spelled for token_id, spelled in first.items() if spelled != tokens[token_id]},
        text_steps=spelling.text_steps,
        has_spaces=spelling is not WORD_PIECE,
    )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ``ModelFileError``."""
    check_not_pointer(path)
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{path} holds no JSON object")
    return content


def _from_folder(folder: Path) -> TokenTable:
    config = folder / "tokenizer_config.json"
    return table_of(read_json(folder / "tokenizer.json"), read_json(config) if config.is_file() else {})


def _from_gguf(path: Path) -> TokenTable:
    try:
        metadata = read_metadata(path, VOCABULARY_KEYS | {_ADD_SPACE_PREFIX})
        kind: Any = metadata.get(MODEL_KEY)
        if kind not in GGUF_SPELLINGS:
            raise ModelFileError(f"it has a vocabulary of kind {kind!r}, which is not supported")
        vocabulary, spelling = GgufVocabulary.of(metadata), GGUF_SPELLINGS[kind]
    except (OSError, ModelFileError) as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error
    pairs = enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
    tokens = {
        token_id: spelling.added_token(token) if kind in ADDED_KINDS else spelling.model_token(token)
        for token_id, (token, kind) in pairs
    }
    prefixed = vocabulary.model in ("llama", "t5") and metadata.get(_ADD_SPACE_PREFIX, True)
    return TokenTable.of(
        tokens,
        vocabulary.ids_of_kinds(SPECIAL_KINDS),
        unused=frozenset(vocabulary.ids_of_kinds((TokenKind.UNUSED,))),
        text_steps=(FIRST_SPACE,) if prefixed else (),
    )


def _mapped(tokens: Mapping[int, str], spelled: Callable[[str], bytes]) -> dict[int, bytes]:
    return {token_id: spelled(token) for token_id, token in tokens.items()}
