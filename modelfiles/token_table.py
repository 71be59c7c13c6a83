"""The bytes of each token of a model, from its ``tokenizer.json`` or its GGUF file.

The detokenizer turns them into text and the engine builds grammar masks over them; both read them here. The ids are
those of the tokenizer that transformers loads from the same files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from modelfiles.decoder_steps import TextStep
from modelfiles.errors import ModelFileError
from modelfiles.gguf_metadata import read_metadata
from modelfiles.gguf_vocabulary import ADDED_KINDS, MODEL_KEY, SPECIAL_KINDS, VOCABULARY_KEYS, GgufVocabulary, TokenKind
from modelfiles.special_tokens import named_ids, named_tokens
from modelfiles.token_spelling import (
    FIRST_SPACE,
    GGUF_SPELLINGS,
    WORD_PIECE,
    spelling_of,
)
from modelfiles.tokenizer_json import added_tokens, model_tokens, read_tokenizer_files
from modelfiles.vocabulary_hash import vocabulary_hash
from protos import simulated

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ADD_SPACE_PREFIX: Final = "tokenizer.ggml.add_space_prefix"


@dataclass(frozen=True, slots=True)
class TokenTable:
    """``spelled`` has the bytes of each id, special tokens as they are spelled; empty for ids without a token."""

    spelled: tuple[bytes, ...]
    special: frozenset[int]
    unused: frozenset[int] = frozenset()
    """Tokens that the file marks as unused."""
    first: Mapping[int, bytes] = field(default_factory=dict)
    """Bytes of the tokens that have different bytes at the start of a text."""
    text_steps: tuple[TextStep, ...] = ()
    """Decoder steps that apply to the text of all tokens together."""
    has_spaces: bool = True
    """Whether tokens keep the spaces of a text; WordPiece does not."""

    @classmethod
    def of(cls, tokens: Mapping[int, bytes], special: Collection[int], **more: Any) -> Self:
        """A table up to the largest id in ``tokens``."""
        size = max(tokens, default=-1) + 1
        return cls(tuple(tokens.get(n, b"") for n in range(size)), frozenset(special), **more)

    def vocabulary_hash(self) -> str:
        """See ``modelfiles.vocabulary_hash``. Special tokens count by their bytes, as all others."""
        return vocabulary_hash(len(self.spelled), self.spelled.__getitem__, self.unused)


def simulated_table() -> TokenTable:
    """One token for each byte, then the control tokens."""
    tokens = {value: bytes([value]) for value in range(simulated.NUM_BYTES)}
    control = {simulated.NUM_BYTES + n: text.encode() for n, text in enumerate(simulated.CONTROL_TOKENS)}
    return TokenTable.of(tokens | control, special=control)


def read_token_table(source: str | Path) -> TokenTable:
    """From ``simulated``, a folder with ``tokenizer.json``, a GGUF file or a Hugging Face id.

    Raises ``ModelFileError``.
    """
    if source == simulated.MODEL_NAME:
        return simulated_table()
    path = Path(source).expanduser()
    return _from_gguf(path) if path.suffix == ".gguf" else _from_files(source)


def table_of_tokenizer(tokenizer: Tokenizer) -> TokenTable:
    """From a loaded tokenizer. Raises ``ModelFileError`` if its decoder is not supported."""
    return table_of(json.loads(tokenizer.to_str()))


def table_of(
    description: dict[str, Any],
    config: Mapping[str, Any] = MappingProxyType({}),
    special_tokens_map: Mapping[str, Any] = MappingProxyType({}),
) -> TokenTable:
    """From the contents of ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json``.

    Raises ``ModelFileError``.
    """
    spelling = spelling_of(description)
    try:
        written = {token_id: token for token, token_id in model_tokens(description["model"])}
        added = dict(added_tokens(description, config))
        contents = {token_id: token["content"] for token_id, token in added.items()}
        special = {token_id for token_id, token in added.items() if token.get("special")}
        named = named_ids(written, contents, named_tokens(config, special_tokens_map))
        special |= named.keys() - contents.keys()
        contents |= named
        tokens = _mapped(written, spelling.model_token) | _mapped(contents, spelling.added_token)
        first = _mapped(written | contents, spelling.first_token) if spelling.first_token is not None else {}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"tokenizer.json is not in the usual format: {error!r}") from error
    return TokenTable.of(
        tokens,
        special,
        first={token_id: spelled for token_id, spelled in first.items() if spelled != tokens[token_id]},
        text_steps=spelling.text_steps,
        has_spaces=spelling is not WORD_PIECE,
    )


def _from_files(source: str | Path) -> TokenTable:
    """From the files of a folder or a Hugging Face id."""
    return table_of(*read_tokenizer_files(str(source)))


def _from_gguf(path: Path) -> TokenTable:
    try:
        metadata = read_metadata(path, VOCABULARY_KEYS | {_ADD_SPACE_PREFIX})
        kind: Any = metadata.get(MODEL_KEY)
        if kind not in GGUF_SPELLINGS:
            raise ModelFileError(f"unsupported tokenizer model {kind!r} ({MODEL_KEY})")
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
