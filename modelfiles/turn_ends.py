"""The tokens that end a turn, from the configurations of a model.

``generation_config.json`` and ``config.json`` both may name them, in ``eos_token_id``, as a number or a list. Either
may be incomplete, so their union counts; 0 is a token like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from modelfiles.errors import ModelFileError
from modelfiles.json_file import read_json
from modelfiles.location import find_file

_CONFIG_FILES: Final = ("generation_config.json", "config.json")
_NESTED: Final = "text_config"
"""Where multimodal models keep the configuration of their language model."""


def turn_ends_in(source: str | Path) -> tuple[int, ...]:
    """From the configurations of a folder or a Hugging Face id. Raises ``ModelFileError``."""
    paths = (find_file(str(source), name) for name in _CONFIG_FILES)
    return tuple(dict.fromkeys(end for path in paths if path is not None for end in _ends(path)))


def _ends(path: Path) -> list[int]:
    try:
        return list(_ends_of(read_json(path)))
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from None


def _ends_of(config: Mapping[str, Any]) -> Iterator[int]:
    """Raises ``ValueError`` if they are not token ids."""
    nested = config.get(_NESTED)
    for part in (config, nested if isinstance(nested, Mapping) else {}):
        given = part.get("eos_token_id")
        for end in given if isinstance(given, list) else [given] if given is not None else []:
            if not isinstance(end, int) or isinstance(end, bool) or end < 0:
                raise ValueError(f"eos_token_id must be a token id or a list of them, not {given!r}")
            yield end
