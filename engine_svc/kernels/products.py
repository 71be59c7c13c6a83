"""One product of rows with an integer layer, timed: for the choice between matrix tiles and vectors, and for tests."""

from __future__ import annotations

from ctypes import POINTER, byref, c_double, c_int32, c_void_p
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine_svc.kernels.packing import Format
from engine_svc.kernels.structures import Linear


@dataclass(frozen=True, slots=True)
class TimedProduct:
    """Results and the time that they took."""

    results: Tensor
    """float32 [rows, outputs]"""
    seconds: float


class Product:
    """``pellucid_multiply`` of a loaded library. It does not check shapes and types."""

    def __init__(self, library: Any) -> None:
        self._multiply = library.pellucid_multiply
        self._multiply.restype = c_double
        self._multiply.argtypes = [POINTER(Linear), c_int32, c_void_p, c_int32, c_int32, c_void_p]

    def __call__(self, linear: Linear, activations: Format, rows: Tensor, *, num_threads: int) -> TimedProduct:
        """``rows`` are float32 [rows, inputs]; ``activations`` is ``INT8`` or ``INT16``; weights are integers too."""
        outputs = sum(linear.parts[part].outputs for part in range(linear.num_parts))
        results = torch.empty((len(rows), outputs), dtype=torch.float32).zero_()  # not zeros(): page faults take time
        seconds = self._multiply(
            byref(linear), activations, rows.data_ptr(), len(rows), num_threads, results.data_ptr()
        )  # fmt: skip
        return TimedProduct(results, seconds)
