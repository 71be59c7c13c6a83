"""GGUF files made in tests: small ones token by token, and others from the tokenizer.json of a real tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gguf import GGUFWriter, TokenType
from tokenizers import pre_tokenizers

LETTERS: Final = sorted(pre_tokenizers.ByteLevel.alphabet())
"""The 256 letters of the byte alphabet."""
BYTES: Final = [f"<0x{value:02X}>" for value in range(256)]

POINTER: Final = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 7031660\n"
"""A Git LFS pointer."""

Tokens = Sequence[tuple[str, TokenType]]


def normal(*spellings: str) -> list[tuple[str, TokenType]]:
    return [(spelling, TokenType.NORMAL) for spelling in spellings]


def control(*spellings: str) -> list[tuple[str, TokenType]]:
    return [(spelling, TokenType.CONTROL) for spelling in spellings]


def user_defined(*spellings: str) -> list[tuple[str, TokenType]]:
    return [(spelling, TokenType.USER_DEFINED) for spelling in spellings]


def write_gguf(path: Path, model: str, tokens: Tokens, *, architecture: str = "llama", **extra: Any) -> Path:
    """A GGUF file with a vocabulary and no tensors; ``extra`` are the writer's methods and their arguments."""
    writer = GGUFWriter(path, architecture)
    writer.add_tokenizer_model(model)
    writer.add_token_list([spelling for spelling, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    for name, value in extra.items():
        getattr(writer, name)(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def as_gguf(path: Path, folder: Path, pre: str, **extra: Any) -> Path:
    """A byte-level tokenizer as llama.cpp's converter writes it."""
    description = json.loads((folder / "tokenizer.json").read_text())
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in description["model"]["merges"]]
    tokens = tokens_of(description)
    return write_gguf(path, "gpt2", tokens, add_tokenizer_pre=pre, add_token_merges=merges, **extra)


def as_scored_gguf(path: Path, folder: Path, architecture: str, **extra: Any) -> Path:
    """A sentencepiece tokenizer as llama.cpp's converter writes it, with scores instead of merges."""
    tokens = tokens_of(json.loads((folder / "tokenizer.json").read_text()), spaced=True)
    scores = [-float(token_id) for token_id in range(len(tokens))]
    return write_gguf(path, "llama", tokens, architecture=architecture, add_token_scores=scores, **extra)


def tokens_of(description: Mapping[str, Any], *, spaced: bool = False) -> list[tuple[str, TokenType]]:
    """All tokens of a ``tokenizer.json`` in the order of their ids, holes filled."""
    kinds = dict.fromkeys(BYTES, TokenType.BYTE) if spaced else {}
    by_id = {
        token_id: (token, kinds.get(token, TokenType.NORMAL))
        for token, token_id in description["model"]["vocab"].items()
    }
    for added in description["added_tokens"]:
        kind = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
        spelled = added["content"]
        by_id[added["id"]] = (spelled.replace("\u2581", " ") if spaced and not added["special"] else spelled, kind)
    missing = lambda token_id: (f"[PAD{token_id}]", TokenType.UNUSED)
    return [by_id.get(token_id) or missing(token_id) for token_id in range(max(by_id) + 1)]
