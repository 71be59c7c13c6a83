"""``tokenizer.json`` and the two files beside it that name special tokens.

Format: https://github.com/huggingface/tokenizers. They are read here without that library, which would have to
build a tokenizer first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from modelfiles.json_file import read_json
from modelfiles.location import find_file, get_file

DESCRIPTION_FILE: Final = "tokenizer.json"
CONFIG_FILE: Final = "tokenizer_config.json"
SPECIAL_TOKENS_FILE: Final = "special_tokens_map.json"


def read_tokenizer_files(source: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The contents of the three files of a folder or a Hugging Face id; empty for a missing file.

    Raises ``ModelFileError``, also for a missing ``tokenizer.json``.
    """
    description = read_json(get_file(source, DESCRIPTION_FILE))
    return description, _read_if_there(source, CONFIG_FILE), _read_if_there(source, SPECIAL_TOKENS_FILE)


def _read_if_there(source: str, name: str) -> dict[str, Any]:
    path = find_file(source, name)
    return {} if path is None else read_json(path)


def model_tokens(model: dict[str, Any]) -> list[tuple[str, int]]:
    """Tokens and ids; a Unigram model lists ``[token, score]`` in the order of the ids."""
    vocab = model["vocab"]
    return list(vocab.items()) if isinstance(vocab, dict) else [(token, n) for n, (token, _) in enumerate(vocab)]


def added_tokens(description: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Added tokens in the order in which they apply: the configuration overrides ``tokenizer.json``."""
    own = [(int(added["id"]), added) for added in description.get("added_tokens", ())]
    configured = [(int(token_id), added) for token_id, added in config.get("added_tokens_decoder", {}).items()]
    return own + configured
