"""The head of a GGUF file: metadata and where the tensors are.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. ``gguf.GGUFReader``
reads the same but makes two arrays of each string; a vocabulary takes it seconds, so lists of strings are skipped here.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType

from engine_svc.weights.errors import ModelLoadError, check_is_file_itself

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MAX_DIMENSIONS: Final = 4
_SCALARS: Final = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.BOOL: "<?",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}


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
    """``metadata`` holds every value but lists of strings."""

    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]


def read_header(path: Path) -> GgufHeader:
    """Raises ``ModelLoadError`` if the file is not a GGUF file of a known version, or ends too early."""
    check_is_file_itself(path)
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _Cursor(data).header()
                size = len(data)
        except (struct.error, ValueError, KeyError, IndexError) as error:
            raise ModelLoadError(f"{path} is not a GGUF file that can be read: {error}") from error
    for tensor in header.tensors:
        if tensor.offset + tensor.num_rows * tensor.row_bytes > size:
            raise ModelLoadError(f"{path} is damaged: it ends before {tensor.name} does")
    return header


class _Cursor:
    """Reads values one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def header(self) -> GgufHeader:
        if self._take(4) != _MAGIC:
            raise ValueError("it does not start with GGUF")
        version = self._scalar("<I")
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is not one of {_VERSIONS}")
        num_tensors, num_values = self._scalar("<Q"), self._scalar("<Q")
        metadata = dict(self._key_value() for _ in range(num_values))
        tensors = [self._tensor_info() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0:
            raise ValueError(f"alignment {alignment!r}")
        start = -(-self._at // alignment) * alignment
        known = {key: value for key, value in metadata.items() if value is not None}
        return GgufHeader(
            known, tuple(TensorInfo(name, shape, type_, start + at) for name, shape, type_, at in tensors)
        )

    def _key_value(self) -> tuple[str, Any]:
        return self._string(), self._value(GGUFValueType(self._scalar("<I")))

    def _value(self, type_: GGUFValueType) -> Any:
        if type_ == GGUFValueType.STRING:
            return self._string()
        if type_ == GGUFValueType.ARRAY:
            return self._array()
        return self._scalar(_SCALARS[type_])

    def _array(self) -> list[Any] | None:
        type_, length = GGUFValueType(self._scalar("<I")), self._scalar("<Q")
        if type_ == GGUFValueType.STRING:
            for _ in range(length):
                self._skip(self._scalar("<Q"))
            return None
        items = np.dtype(_SCALARS[type_])
        values: list[Any] = np.frombuffer(self._take(length * items.itemsize), items).tolist()
        return values

    def _tensor_info(self) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
        name, num_dimensions = self._string(), self._scalar("<I")
        if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
            raise ValueError(f"{name} has {num_dimensions} dimensions")
        shape = tuple(self._scalar("<Q") for _ in range(num_dimensions))[::-1]
        type_ = GGMLQuantizationType(self._scalar("<I"))
        if shape[-1] % GGML_QUANT_SIZES[type_][0]:
            raise ValueError(f"{name} has rows of {shape[-1]}, which is no whole number of {type_.name} blocks")
        return name, shape, type_, self._scalar("<Q")

    def _scalar(self, format_: str) -> Any:
        (value,) = struct.unpack_from(format_, self._data, self._at)
        self._at += struct.calcsize(format_)
        return value

    def _string(self) -> str:
        return self._take(self._scalar("<Q")).decode()

    def _take(self, length: int) -> bytes:
        start = self._at
        self._skip(length)
        return self._data[start : self._at]

    def _skip(self, length: int) -> None:
        self._at += length
        if self._at > len(self._data):
            raise ValueError("it ends in its header")
