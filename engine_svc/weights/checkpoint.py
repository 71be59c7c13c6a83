"""What every checkpoint format offers: a configuration and named tensors, both spelled as Hugging Face spells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from engine_svc.weights.gguf_file import GgufFile
from engine_svc.weights.quantized import QuantizedRows
from engine_svc.weights.safetensors_folder import SafetensorsFolder


class StoredTensor(Protocol):
    """A tensor that is still on disk. Valid until the iterator that yielded it moves on."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def copy_to(self, destination: Tensor) -> None:
        """Fill ``destination``, which has the same shape, converting to its element type."""

    def quantized(self) -> QuantizedRows | None:
        """The integers that it is stored as, where they are such as can be computed with."""


class Checkpoint(Protocol):
    """A model on disk."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The content of a Hugging Face config.json."""

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """End-of-sequence tokens that the files name, ascending."""

    @property
    def is_quantized(self) -> bool:
        """Whether the matrices are stored as integers that can be computed with, at least most of them by size."""

    def tensors(self) -> Iterator[StoredTensor]:
        """All tensors, in the order of the files."""


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder or .gguf file. Raises ``ModelLoadError`` if it is incomplete, damaged or unknown."""
    return SafetensorsFolder(path) if path.is_dir() else GgufFile(path)
