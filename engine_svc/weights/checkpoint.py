"""The interface of checkpoint formats: a configuration and named tensors, both with Hugging Face names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from engine_svc.weights.gguf_file import GgufFile
from engine_svc.weights.quantized import QuantizedRows
from engine_svc.weights.safetensors_folder import SafetensorsFolder


class StoredTensor(Protocol):
    """A tensor on disk. Valid until the iterator that yielded it advances."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def copy_to(self, destination: Tensor) -> None:
        """Fill ``destination``, which has the same shape, converting to its dtype."""

    def quantized(self) -> QuantizedRows | None:
        """The stored integers, if the kernels support their type; else None."""


class Checkpoint(Protocol):
    """A model on disk."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The content of a Hugging Face config.json."""

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """End-of-sequence token ids in the files, ascending."""

    @property
    def is_quantized(self) -> bool:
        """Whether most of the matrices, by size, are stored as integers that the kernels support."""

    def tensors(self) -> Iterator[StoredTensor]:
        """All tensors, in file order."""


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder or .gguf file. Raises ``ModelLoadError`` if it is incomplete, damaged or unknown."""
    return SafetensorsFolder(path) if path.is_dir() else GgufFile(path)
