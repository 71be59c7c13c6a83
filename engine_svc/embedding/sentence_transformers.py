"""Reads the configuration files of the sentence-transformers library: pooling and maximum length.

Format: modules.json lists the modules in order of application, each with its own folder that has a config.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine_svc.embedding.interface import Pooling
from engine_svc.models.config import RawConfig
from engine_svc.weights.errors import ModelLoadError, check_not_lfs_pointer

MODULES_FILE: Final = "modules.json"
_LENGTH_FILE: Final = "sentence_bert_config.json"
_POOLINGS: Final[dict[str, Pooling]] = {
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
"""By value of ``pooling_mode``, and by the flags that older versions have instead."""
_FLAG: Final = "pooling_mode_"


@dataclass(frozen=True, slots=True)
class SentenceTransformersConfig:
    """Contents of the files; None for a field that is not set. ``max_seq_length`` is in tokens."""

    pooling: Pooling | None = None
    max_seq_length: int | None = None


def is_sentence_transformers_model(folder: Path) -> bool:
    """Whether the folder was saved by sentence-transformers, and so is an embedding model."""
    return (folder / MODULES_FILE).is_file()


def read_sentence_transformers_config(folder: Path) -> SentenceTransformersConfig:
    """Raises ``ModelLoadError`` if the files have a module or option that is not supported."""
    if not is_sentence_transformers_model(folder):
        return SentenceTransformersConfig()
    pooling = None
    for kind, path in _modules(folder / MODULES_FILE):
        match kind:
            case "Pooling":
                pooling = _pooling(folder / path / "config.json")
            case "Transformer" | "Normalize":
                pass  # each request has its own ``normalize``
            case other:
                raise ModelLoadError(
                    f"{folder / MODULES_FILE}: module type {other} is not supported; "
                    "supported: Transformer, Pooling, Normalize"
                )
    return SentenceTransformersConfig(pooling, _max_seq_length(folder))


def _modules(file: Path) -> Iterator[tuple[str, str]]:
    """Class name and folder of each module. The package of a class differs between versions."""
    for module in _read(file, list):
        if not isinstance(module, dict):
            raise ModelLoadError(f"{file}: a module must be an object, got {module!r}")
        yield str(module.get("type")).rpartition(".")[2], str(module.get("path", ""))


def _pooling(file: Path) -> Pooling:
    values = _read(file, dict)
    RawConfig(values, str(file)).require("include_prompt", True)
    flags = [name for name, value in values.items() if name.startswith(_FLAG) and value]
    modes = values.get("pooling_mode") or flags or "mean"
    chosen = [modes] if isinstance(modes, str) else list(modes)
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise ModelLoadError(
            f"{file}: pooling {' and '.join(map(str, chosen))} is not supported; supported: one of cls, mean, lasttoken"
        )
    return _POOLINGS[chosen[0]]


def _max_seq_length(folder: Path) -> int | None:
    file = folder / _LENGTH_FILE
    return RawConfig(_read(file, dict), str(file)).optional_integer("max_seq_length") if file.is_file() else None


def _read(file: Path, kind: type[Any]) -> Any:
    check_not_lfs_pointer(file)
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, kind):
        raise ModelLoadError(f"{file} is not a JSON {'object' if kind is dict else 'array'}")
    return content
