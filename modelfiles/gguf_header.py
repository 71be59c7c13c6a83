"""The header of a GGUF file: metadata, and the place of each tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType

from modelfiles.gguf_metadata import GgufError, GgufReader, open_gguf

_MAX_DIMENSIONS: Final = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. ``shape`` is outermost dimension first; ``offset`` is in bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one run along the innermost dimension."""
        block, size = GGML_QUANT_SIZES[self.type]
        return self.shape[-1] // block * size

    @property
    def num_rows(self) -> int:
        return math.prod(self.shape[:-1])


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """``metadata`` has all values except lists of strings, which only vocabularies need."""

    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]


def read_header(path: Path) -> GgufHeader:
    """Raises ``ModelFileError`` if the file is not a GGUF file of a supported version, or is truncated."""
    with open_gguf(path) as reader:
        metadata: dict[str, Any] = reader.metadata(lambda _: True, lists_of_strings=False)
        infos = [_tensor_info(reader) for _ in range(reader.num_tensors)]
        start = _aligned(reader.at, metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT))
        tensors = tuple(TensorInfo(name, shape, type_, start + at) for name, shape, type_, at in infos)
        _check_end(tensors, reader.size)
    return GgufHeader(metadata, tensors)


def _tensor_info(reader: GgufReader) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
    name, num_dimensions = reader.string(), reader.u32()
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise GgufError(f"{name} has {num_dimensions} dimensions")
    shape = tuple(reader.u64() for _ in range(num_dimensions))[::-1]
    type_ = GGMLQuantizationType(reader.u32())
    if shape[-1] % GGML_QUANT_SIZES[type_][0]:
        raise GgufError(f"{name} has rows of {shape[-1]}, not a multiple of the block size of {type_.name}")
    return name, shape, type_, reader.u64()


def _aligned(at: int, alignment: object) -> int:
    if not isinstance(alignment, int) or alignment <= 0:
        raise GgufError(f"alignment {alignment!r}")
    return -(-at // alignment) * alignment


def _check_end(tensors: tuple[TensorInfo, ...], size: int) -> None:
    for tensor in tensors:
        if tensor.offset + tensor.num_rows * tensor.row_bytes > size:
            raise GgufError(f"it is truncated: {tensor.name} is incomplete")
