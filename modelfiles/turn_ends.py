"""The tokens that end a turn, by the configurations of a model.

``generation_config.json`` and ``config.json`` both may name some, in ``eos_token_id``, as a number or a list. What one
of them leaves out another may have, so all count; 0 is a token like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from modelfiles.errors import ModelFileError
from modelfiles.token_table import read_json

CONFIG_FILES: Final = ("generation_config.json", "config.json")
_NESTED: Final = "text_config"
"""Where models that read more than text keep the configuration of their language model."""


def turn_ends_of(paths: Iterable[Path]) -> tuple[int, ...]:
    """Of some of the ``CONFIG_FILES``, in their order. Raises ``ModelFileError``."""
    return tuple(dict.fromkeys(end for path in paths for end in _ends(path)))


def turn_ends_in(folder: Path) -> tuple[int, ...]:
    """Of those that a folder has. Raises ``ModelFileError``."""
    return turn_ends_of(path for name in CONFIG_FILES if (path := folder / name).is_file())


def ends_in(config: Mapping[str, Any]) -> Iterator[int]:
    """Of the content of one. Raises ``ValueError`` if it is not whole numbers."""
    nested = config.get(_NESTED)
    for part in (config, nested if isinstance(nested, Mapping) else {}):
        given = part.get("eos_token_id")
        for end in given if isinstance(given, list) else [given] if given is not None else []:
            if not isinstance(end, int) or isinstance(end, bool) or end < 0:
                raise ValueError(f"eos_token_id must be a token id or a list of them, not {given!r}")
            yield end


def _ends(path: Path) -> list[int]:
    try:
        return list(ends_in(read_json(path)))
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from None
