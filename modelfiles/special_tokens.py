"""The special tokens that configurations name by role, and the ids of those that ``tokenizer.json`` lacks.

transformers appends such tokens when it loads a tokenizer, and marks them as special
(``PreTrainedTokenizerBase._from_pretrained`` and ``TokenizersBackend.__init__``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

ROLES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_EXTRA: Final = ("extra_special_tokens", "additional_special_tokens")


def spelling_of_token(token: Any) -> str:
    """A token in a configuration: a text, or an object with the text as ``content``; empty for anything else."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else ""


def named_tokens(config: Mapping[str, Any], special_tokens_map: Mapping[str, Any]) -> list[str]:
    """Spellings of the tokens in ``tokenizer_config.json`` and ``special_tokens_map.json``, without duplicates.

    The second file counts only if the first has no ``added_tokens_decoder``, and then overrides the first.
    """
    legacy = {} if "added_tokens_decoder" in config else special_tokens_map
    merged = {**config, **legacy, "extra": [*_extra(config), *_extra(legacy)]}
    return list(dict.fromkeys(spelling for spelling in _in_order(merged) if spelling))


def named_ids(vocabulary: Mapping[int, str], added: Mapping[int, str], named: Sequence[str]) -> dict[int, str]:
    """Ids of named tokens. Those without an id are appended after the last added token, or after the vocabulary."""
    wanted = frozenset(named)
    ids = {token: token_id for tokens in (vocabulary, added) for token_id, token in tokens.items() if token in wanted}
    last, size = max(added, default=-1), len(vocabulary)
    appended = enumerate((token for token in named if token not in ids), last + 1 if last >= size else size)
    return {token_id: token for token, token_id in ids.items()} | dict(appended)


def _in_order(merged: Mapping[str, Any]) -> Iterator[str]:
    yield from (spelling_of_token(merged.get(role)) for role in ROLES)
    yield from (spelling_of_token(token) for key, token in merged.items() if key.endswith("_token"))
    yield from map(spelling_of_token, merged["extra"])


def _extra(config: Mapping[str, Any]) -> list[Any]:
    given = next((config[key] for key in _EXTRA if config.get(key)), ())
    return list(given.values()) if isinstance(given, Mapping) else list(given)
