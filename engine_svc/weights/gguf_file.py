"""A GGUF file as a checkpoint: names, configuration and row order are converted to those of Hugging Face."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from gguf.quants import dequantize
from torch import Tensor

from engine_svc.weights.errors import ModelLoadError, load_errors
from engine_svc.weights.gguf_architectures import Architecture
from engine_svc.weights.gguf_blocks import KERNEL_TYPES, read_blocks
from engine_svc.weights.gguf_config import ROPE_TENSORS, RopeFactors, architecture_of, read_config
from engine_svc.weights.quantized import QuantizedRows
from modelfiles.gguf_header import TensorInfo, read_header
from modelfiles.gguf_vocabulary import turn_ends_in_metadata

_CHUNK_ELEMENTS: Final = 1 << 20
"""Elements converted at a time: fits the CPU cache, and bounds the extra memory of loading."""

_MIN_QUANTIZED_SHARE: Final = 0.75
"""Minimum share of matrix elements in ``KERNEL_TYPES`` for a file to count as quantised. Other matrices are quantised
to 8 bits, and a file with more of those was meant to be more precise. Embeddings alone can be a fifth of a small
model."""

_LAYER: Final = re.compile(r"blk\.(\d+)\.(.+)")

_Rows = npt.NDArray[np.uint8]


class GgufFile:
    """A checkpoint in one file (see ``engine_svc.weights.checkpoint.Checkpoint``)."""

    def __init__(self, path: Path) -> None:
        with load_errors():
            header = read_header(path)
        self._data = np.memmap(path, mode="r")
        self._infos = {info.name: info for info in header.tensors}
        self._architecture = architecture_of(path, header)
        self.config = read_config(path, header, self._rope_factors)
        self.eos_token_ids = tuple(sorted(turn_ends_in_metadata(header.metadata)))

    @property
    def is_quantized(self) -> bool:
        sizes = {info.name: math.prod(info.shape) for info in self._infos.values() if len(info.shape) > 1}
        quantized = sum(size for name, size in sizes.items() if self._infos[name].type in KERNEL_TYPES)
        return quantized > 0 and quantized >= _MIN_QUANTIZED_SHARE * sum(sizes.values())

    def tensors(self) -> Iterator[_Tensor]:
        for info in self._infos.values():
            if info.name not in ROPE_TENSORS:
                yield self._tensor(info, hugging_face_name(info.name, self._architecture))

    def _tensor(self, info: TensorInfo, name: str) -> _Tensor:
        heads = {"q_proj": self.config["num_attention_heads"], "k_proj": self.config["num_key_value_heads"]}
        layer = name.split(".")[-2] if "." in name else name
        return _Tensor(
            name,
            info,
            self._rows(info),
            interleaved_heads=heads.get(layer) if self._architecture.interleaved else None,
            offset=self._architecture.norm_offset if layer.endswith("norm") else 0.0,
        )

    def _rows(self, info: TensorInfo) -> _Rows:
        """The bytes of a tensor [rows, bytes per row]; a vector has one element per row."""
        if len(info.shape) == 1:
            return self._data[info.offset : info.offset + info.row_bytes].reshape(info.shape[0], -1)
        return self._data[info.offset :][: info.num_rows * info.row_bytes].reshape(info.num_rows, -1)

    def _rope_factors(self, name: str) -> RopeFactors:
        info = self._infos.get(name)
        if info is None:
            return None
        factors: list[float] = dequantize(self._rows(info), info.type).ravel().tolist()
        return factors


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    info: TensorInfo
    rows: _Rows
    interleaved_heads: int | None
    offset: float
    """Offset that was added to each element"""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    def copy_to(self, destination: Tensor) -> None:
        target = destination.view(len(self.rows), -1)
        order = _row_order(len(self.rows), self.interleaved_heads) if self.interleaved_heads else None
        step = max(1, _CHUNK_ELEMENTS // target.shape[1])
        for start in range(0, len(self.rows), step):
            part = slice(start, start + step)
            rows = self.rows[part] if order is None else self.rows[order[part]]
            values = torch.from_numpy(np.require(self._dequantize(rows), requirements="W"))
            target[part] = values - self.offset if self.offset else values

    def quantized(self) -> QuantizedRows | None:
        if self.info.type not in KERNEL_TYPES:
            return None
        order = _row_order(len(self.rows), self.interleaved_heads) if self.interleaved_heads else slice(None)
        return read_blocks(self.rows[order], self.info.type)

    def _dequantize(self, rows: _Rows) -> npt.NDArray[np.float32]:
        try:
            return dequantize(rows, self.info.type)
        except NotImplementedError as error:
            raise ModelLoadError(f"{self.info.name}: type {self.info.type.name} is not supported") from error


def hugging_face_name(name: str, architecture: Architecture) -> str:
    """The Hugging Face name of a tensor; an unknown name is returned unchanged."""
    layer = _LAYER.fullmatch(name)
    prefix, rest = (f"model.layers.{layer[1]}.", layer[2]) if layer else ("", name)
    stem, dot, kind = rest.rpartition(".")
    return f"{prefix}{architecture.tensors[stem]}{dot}{kind}" if stem in architecture.tensors else name


def _row_order(num_rows: int, num_heads: int) -> npt.NDArray[np.int64]:
    """The position in the file of each row of a query or key projection.

    llama.cpp rotates adjacent pairs, Hugging Face the two halves of a head. So llama.cpp's converter interleaves the
    halves (``permute`` in convert_hf_to_gguf.py); this undoes it.
    """
    return np.arange(num_rows).reshape(num_heads, -1, 2).swapaxes(1, 2).ravel()
