"""The vocabulary of a model for masks, from the files beside its weights or from a file of ours."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import structlog
from llguidance import LLTokenizer, TokenizerWrapper

from engine_svc.constraint import Mask
from engine_svc.grammar.token_bytes import TokenBytes, VocabularyError, read_token_bytes, simulated_tokens
from protos.simulated import MODEL_NAME

_BYTE_FOR_BYTE: Final = "latin-1"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GrammarVocabulary:
    """The tokens of a model as bytes, and llguidance's form of them.

    ``size`` is the model's number of token ids. llguidance's own end of sequence is one beyond, because the tokens that
    end a sequence differ from request to request.
    """

    tokens: TokenBytes = field(repr=False)
    size: int
    compiled: LLTokenizer

    def mask(self, bits: bytes) -> Mask:
        """llguidance's bits as an array; its end of sequence is left out."""
        return np.unpackbits(np.frombuffer(bits, np.uint8), count=self.size, bitorder="little").view(np.bool_)


def load_grammar_vocabulary(source: str, size: int) -> GrammarVocabulary | None:
    """From ``simulated``, a folder or a GGUF file; None if its tokens are unknown. ``size`` is the model's."""
    try:
        tokens = simulated_tokens() if source in ("", MODEL_NAME) else read_token_bytes(Path(source))
    except VocabularyError as error:
        log.warning("outputs cannot be constrained", reason=str(error))
        return None
    return vocabulary_of(tokens, size)


def vocabulary_of(tokens: TokenBytes, size: int) -> GrammarVocabulary:
    """Truncated or padded to the model's size. Takes a second for 150,000 tokens."""
    padding = (b"",) * (size - len(tokens.spelled))
    special = frozenset(token_id for token_id in tokens.special if token_id < size)
    tokens = TokenBytes((*tokens.spelled, *padding)[:size], special, tokens.vocabulary_hash)
    return GrammarVocabulary(tokens, size, LLTokenizer(_ForLlguidance(tokens)))


def write_tokens(tokens: TokenBytes, path: Path) -> None:
    """Write a file for ``read_tokens``: JSON, where each byte is the character with its number."""
    spelled = [token.decode(_BYTE_FOR_BYTE) for token in tokens.spelled]
    path.write_text(json.dumps({"spelled": spelled, "special": sorted(tokens.special)}), encoding="ascii")


def read_tokens(path: Path) -> TokenBytes:
    """Read a file of ``write_tokens``."""
    content = json.loads(path.read_text(encoding="ascii"))
    return TokenBytes(
        tuple(token.encode(_BYTE_FOR_BYTE) for token in content["spelled"]), frozenset(content["special"])
    )


class _ForLlguidance(TokenizerWrapper):
    """llguidance's interface of a tokenizer. It never tokenizes, because grammars have the option ``no_forcing``."""

    def __init__(self, tokens: TokenBytes) -> None:
        self.is_tokenizer_wrapper = True
        self.bos_token_id = None
        self.eos_token_id = len(tokens.spelled)
        self.tokens = [*tokens.spelled, b""]
        self.special_token_ids = list(tokens.special)

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("grammars must have `no_forcing`")
