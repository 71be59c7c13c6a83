"""Precision and quantisation: what a model is multiplied in."""

from __future__ import annotations

from typing import Final

import torch

from engine_svc.kernels.library import Kernels
from engine_svc.kernels.packing import Format
from engine_svc.weights.checkpoint import Checkpoint
from engine_svc.weights.errors import ModelLoadError

DTYPES: Final = {
    Format.FLOAT32: torch.float32,
    Format.BFLOAT16: torch.bfloat16,
    Format.INT16: torch.bfloat16,
    Format.INT8: torch.bfloat16,
}
"""What models are computed in, and the element type of their KV caches"""

INTEGERS: Final = frozenset({Format.INT16, Format.INT8})

_FLOATS: Final = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}
_INTEGERS: Final = {"int8": Format.INT8, "int16": Format.INT16}
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve_format(dtype: str, quantization: str, checkpoint: Checkpoint, kernels: Kernels | None) -> Format:
    """What a model's activations are multiplied as, which says what its weights are.

    ``dtype`` as in ``resolve_dtype``. ``quantization`` is ``none``; or ``int8`` or ``int16`` for integers: weights of 8
    bits, or of 4 where they are stored so, and activations of 8 bits with 15 in outlier groups (``int8``), or of 15
    throughout (``int16``); or ``auto``: ``int8`` if weights are stored as such integers, this processor multiplies
    them fast and no ``dtype`` was asked for. The few matrices of such a file that are stored otherwise are rounded to 8
    bits. Raises ``ModelLoadError`` if this machine cannot.
    """
    if quantization == "auto":
        fast = kernels is not None and kernels.fast_integers
        quantization = "int8" if fast and dtype == "auto" and checkpoint.is_quantized else "none"
    if quantization == "none":
        return _FLOATS[resolve_dtype(dtype)]
    if kernels is None:
        raise ModelLoadError(f"quantization {quantization} needs the compiled kernels, which are not in use")
    if dtype == "float32":
        raise ModelLoadError(f"quantization {quantization} goes with dtype bfloat16, that of the cache, not float32")
    return _INTEGERS[quantization]


def resolve_dtype(name: str) -> torch.dtype:
    """``auto`` is bfloat16 where the CPU multiplies it in hardware, else float32."""
    if name == "auto":
        abilities = torch.cpu.get_capabilities()
        fast = abilities.get("avx512_bf16") or abilities.get("amx_bf16")
        return torch.bfloat16 if fast else torch.float32
    if name not in _DTYPES:
        raise ModelLoadError(f"dtype {name} is not supported; supported are auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]
