"""The keys under ``tokenizer.ggml`` in the metadata of a GGUF file, checked when they are read.

Meanings of the keys: llama.cpp's llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from modelfiles.errors import ModelFileError
from modelfiles.gguf_vocabulary import VOCABULARY_KEYS, GgufVocabulary

_GGML: Final = "tokenizer.ggml."
_FACTS: Final = (
    "pre", "scores", "merges", "add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces",
    "precompiled_charsmap",
)  # fmt: skip
TEMPLATE_KEY: Final = "tokenizer.chat_template"
TOKENIZER_KEYS: Final = VOCABULARY_KEYS | {"general.name", TEMPLATE_KEY, *(_GGML + fact for fact in _FACTS)}
"""All keys that a tokenizer is built from, except named chat templates."""


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """The vocabulary and the other metadata of a tokenizer."""

    vocabulary: GgufVocabulary
    metadata: Mapping[str, Any]

    def get(self, key: str, missing: Any = None) -> Any:
        """The value of a key under ``tokenizer.ggml``."""
        return self.metadata.get(_GGML + key, missing)

    @property
    def model_name(self) -> str:
        """``general.name`` in lower case; empty if it is absent."""
        return str(self.metadata.get("general.name", "")).lower()

    @property
    def ids(self) -> dict[str, int]:
        """Ids by spelling. Raises ``ModelFileError`` if two tokens have the same spelling."""
        tokens = self.vocabulary.tokens
        ids = {token: token_id for token_id, token in enumerate(tokens)}
        if len(ids) < len(tokens):
            twice = next(token for token_id, token in enumerate(tokens) if ids[token] != token_id)
            raise ModelFileError(f"tokenizer.ggml.tokens has {twice[:100]!r} more than once")
        return ids

    @property
    def scores(self) -> list[float] | None:
        scores = self.get("scores")
        if scores is not None and len(scores) < len(self.vocabulary.tokens):
            raise ModelFileError("tokenizer.ggml.scores has fewer items than there are tokens")
        return scores  # type: ignore[no-any-return]

    @property
    def unknown(self) -> str | None:
        """Spelling of the unknown token."""
        token_id = self.vocabulary.roles.get("unk")
        return None if token_id is None else self.vocabulary.tokens[token_id]
