"""Python bindings of the compiled kernels (ctypes). The kernels are described in ``csrc/``."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from engine_svc.kernels.build import library_path
from engine_svc.kernels.products import Product
from engine_svc.kernels.structures import AttentionShape, Batch, Decoder, Rows, Tokens, check_structures
from engine_svc.kernels.tiles import find_tile_support


class Kernels:
    """The loaded library. Its functions release the GIL, and do not check shapes and types."""

    def __init__(self, path: Path) -> None:
        """Raises ``OSError`` if the library does not exist or cannot be loaded on this machine.

        Raises ``StructureMismatch`` if it was compiled with other structures than those in ``structures.py``.
        """
        library = ctypes.CDLL(str(path))
        check_structures(library)
        self._attend = library.pellucid_attend
        self._attend.restype = None
        self._attend.argtypes = [POINTER(AttentionShape), POINTER(Batch), c_void_p, c_int32, *[POINTER(Rows)] * 4]
        self._forward = library.pellucid_forward
        self._forward.restype = None
        self._forward.argtypes = [
            POINTER(Decoder), POINTER(Tokens), POINTER(Batch), c_void_p, c_int64, c_void_p, c_void_p,
        ]  # fmt: skip
        self._logits = library.pellucid_logits
        self._logits.restype = None
        self._logits.argtypes = [POINTER(Decoder), c_void_p, c_int32, c_void_p, c_void_p]
        self._workspace_bytes = library.pellucid_workspace_bytes
        self._workspace_bytes.restype = c_int64
        self._workspace_bytes.argtypes = [POINTER(Decoder), c_int32]
        self.multiply = Product(library)
        self.tile_support = find_tile_support(library)
        self.lanes: int = library.pellucid_lanes()
        """Outputs per panel of a packed matrix"""
        self.has_fast_int8 = bool(library.pellucid_has_fast_int8())
        """Whether this CPU multiplies int8 faster than floats (AVX2, VNNI, Arm dot product)"""

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
        """``AttentionStep.attend`` over the KV ``cache`` of one layer."""
        out = torch.empty(query.shape, dtype=query.dtype)
        self._attend(shape, batch, cache.data_ptr(), window or 0, *map(_rows, (query, key, value, out)))
        return out

    def workspace_bytes(self, decoder: Decoder, num_tokens: int) -> int:
        """Size of the workspace of a step with ``num_tokens`` tokens."""
        size: int = self._workspace_bytes(decoder, num_tokens)
        return size

    def forward(
        self, decoder: Decoder, tokens: Tokens, batch: Batch, cache: Tensor, workspace: Tensor, hidden: Tensor
    ) -> None:
        """Run all layers for one step. ``cache`` has a row per layer. Fills ``hidden`` float32 [rows, hidden_size]."""
        layer_bytes = cache.stride(0) * cache.element_size()
        pointers = (cache.data_ptr(), layer_bytes, workspace.data_ptr(), hidden.data_ptr())
        self._forward(decoder, tokens, batch, *pointers)

    def logits(self, decoder: Decoder, hidden: Tensor, workspace: Tensor, logits: Tensor) -> None:
        """Fill ``logits`` float32 [rows, vocab_size] from ``hidden`` float32 [rows, hidden_size]."""
        self._logits(decoder, hidden.data_ptr(), len(hidden), workspace.data_ptr(), logits.data_ptr())


def load_kernels(path: Path | None = None) -> Kernels | None:
    """The library built at set-up; None if it was not built. Raises as ``Kernels`` does."""
    path = path or library_path()
    return Kernels(path) if path.exists() else None


def _rows(x: Tensor) -> Rows:
    """``x`` is [tokens, heads, head_dim]; the last two dimensions must be contiguous."""
    assert x.stride(2) == 1 and x.stride(1) == x.shape[2]  # noqa: PT018
    return Rows(x.data_ptr(), x.stride(0))
