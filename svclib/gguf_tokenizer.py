"""The tokenizer that a GGUF file describes, built by transformers' own rules.

transformers reads the file with torch, so the metadata is read here and only the conversion is theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from transformers import TokenizersBackend
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

from svclib.gguf_metadata import read_metadata

_ARCHITECTURE: Final = "general.architecture"
_TURN_ENDS: Final = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_NAMED: Final = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def load_gguf_tokenizer(path: Path) -> tuple[TokenizersBackend, tuple[int, ...]]:
    """The tokenizer and the tokens that end a turn.

    Raises ``OSError``, ``GgufError``, or ``ValueError`` and ``KeyError`` for a kind of tokenizer that is not known.
    """
    mapped = {name for names in GGUF_TOKENIZER_MAPPING.values() for name in names}
    keys = {_ARCHITECTURE, *_TURN_ENDS, *_NAMED.values(), *(f"tokenizer.{name}" for name in mapped)}
    metadata: dict[str, Any] = dict(read_metadata(path, keys))
    described = _renamed(metadata, "tokenizer")
    tokenizer, _ = convert_gguf_tokenizer(metadata[_ARCHITECTURE], described)
    backend = TokenizersBackend(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, **_config(metadata, described)
    )
    return backend, tuple(metadata[key] for key in _TURN_ENDS if key in metadata)


def _renamed(metadata: dict[str, Any], group: str) -> dict[str, Any]:
    """The values of one group of keys, by the names that transformers gives them."""
    names = GGUF_TOKENIZER_MAPPING[group]
    return {name: metadata[f"tokenizer.{key}"] for key, name in names.items() if f"tokenizer.{key}" in metadata}


def _config(metadata: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """What would stand in ``tokenizer_config.json``; see ``get_gguf_tokenizer`` of transformers for the exceptions."""
    config = _renamed(metadata, "tokenizer_config")
    if described.get("tokenizer_type") == "llama":
        config.setdefault("add_bos_token", True)
    elif described.get("tokenizer_type") == "gemma4":
        config["add_bos_token"] = False
    tokens = described["tokens"]
    named = {name: tokens[metadata[key]] if key in metadata else None for name, key in _NAMED.items()}
    return config | named
