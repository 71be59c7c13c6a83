"""The compiled kernels as Python functions. Knows their signatures; what they do stands in ``csrc/``."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from engine_svc.kernels.build import library_path


class AttentionShape(Structure):
    """``PellucidAttention`` in attention.cpp."""

    _fields_ = [
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("is_bfloat16", c_int32),
        ("num_threads", c_int32),
    ]


class Batch(Structure):
    """``PellucidBatch`` in attention.cpp."""

    _fields_ = [
        ("slot_mapping", c_void_p),
        ("query_starts", c_void_p),
        ("context_lens", c_void_p),
        ("block_tables", c_void_p),
        ("num_tokens", c_int32),
        ("num_sequences", c_int32),
        ("table_stride", c_int32),
    ]


class Rows(Structure):
    """``PellucidRows`` in attention.cpp."""

    _fields_ = [("data", c_void_p), ("stride", c_int64)]


class Kernels:
    """The library. Its functions release the GIL, and trust the caller with shapes and types."""

    def __init__(self, path: Path) -> None:
        """Raises ``OSError`` if there is no such library, or it needs what this machine lacks."""
        library = ctypes.CDLL(str(path))
        self._attend = library.pellucid_attend
        self._attend.restype = None
        self._attend.argtypes = [
            POINTER(AttentionShape), POINTER(Batch), c_void_p, c_int32, *[POINTER(Rows)] * 4,
        ]  # fmt: skip

    def attend(
        self,
        shape: AttentionShape,
        batch: Batch,
        cache: Tensor,
        window: int | None,
        query: Tensor,
        key: Tensor,
        value: Tensor,
    ) -> Tensor:
        """``AttentionStep.attend`` over the ``cache`` of one layer."""
        out = torch.empty(query.shape, dtype=query.dtype)
        self._attend(shape, batch, cache.data_ptr(), window or 0, *map(_rows, (query, key, value, out)))
        return out


def load_kernels(path: Path | None = None) -> Kernels | None:
    """The library that set-up built, or None."""
    try:
        return Kernels(path or library_path())
    except OSError:
        return None


def _rows(x: Tensor) -> Rows:
    """``x`` is [tokens, heads, head_dim], of which the last two lie together."""
    assert x.stride(2) == 1 and x.stride(1) == x.shape[2]  # noqa: PT018
    return Rows(x.data_ptr(), x.stride(0))
