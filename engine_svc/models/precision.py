"""Precision and quantisation of a model: dtype and format of its weights and activations."""

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
"""Compute dtype, which is also the dtype of the KV cache, by format"""

INTEGERS: Final = frozenset({Format.INT16, Format.INT8})

_FLOATS: Final = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}
_INTEGERS: Final = {"int8": Format.INT8, "int16": Format.INT16}
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve_format(dtype: str, quantization: str, checkpoint: Checkpoint, kernels: Kernels | None) -> Format:
    """The format of a model's activations, which determines the format of its weights.

    ``dtype`` as in ``resolve_dtype``. ``quantization`` is one of

    - ``none``;
    - ``int8``: weights of 8 bits, or 4 if stored so; activations of 8 bits, and 15 bits in outlier groups;
    - ``int16``: the same weights; activations of 15 bits in all groups;
    - ``auto``: ``int8`` if the checkpoint is quantised, this CPU has fast int8 products and ``dtype`` is ``auto``; else
      ``none``.

    With integers, matrices that the checkpoint stores in other types are quantised to 8 bits. Raises ``ModelLoadError``
    if the combination is not supported.
    """
    if quantization == "auto":
        fast = kernels is not None and kernels.has_fast_int8
        quantization = "int8" if fast and dtype == "auto" and checkpoint.is_quantized else "none"
    if quantization == "none":
        return _FLOATS[resolve_dtype(dtype)]
    if kernels is None:
        raise ModelLoadError(
            f"quantization {quantization} needs the compiled kernels; they are not built, or not selected"
        )
    if dtype == "float32":
        raise ModelLoadError(
            f"quantization {quantization} needs dtype bfloat16 (the dtype of the KV cache) or auto, not float32"
        )
    return _INTEGERS[quantization]


def resolve_dtype(name: str) -> torch.dtype:
    """``auto`` is bfloat16 if the CPU multiplies it in hardware, else float32."""
    if name == "auto":
        capabilities = torch.cpu.get_capabilities()
        fast = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
        return torch.bfloat16 if fast else torch.float32
    if name not in _DTYPES:
        raise ModelLoadError(f"dtype {name} is not supported; supported: auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]
