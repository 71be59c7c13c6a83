"""The quantised GGUF types that the kernels support without conversion: blocks of 32 values of 4 or 8 bits.

Formats: ``block_q4_0``, ``block_q4_1`` and ``block_q8_0`` in ggml-common.h.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine_svc.weights.quantized import ZERO_POINT, QuantizedRows

Bytes = npt.NDArray[np.uint8]

KERNEL_TYPES: Final = frozenset({GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0})
"""Types that the kernels support"""


def read_blocks(rows: Bytes, type_: GGMLQuantizationType) -> QuantizedRows:
    """The values, scales and minima in ``rows`` [rows, bytes] of one of the ``KERNEL_TYPES``."""
    blocks = rows.reshape(len(rows), -1, GGML_QUANT_SIZES[type_][1])  # [rows, groups, bytes]
    scales = _halves(blocks, 0)
    match type_:
        case GGMLQuantizationType.Q4_0:  # scale * (value - 8)
            return QuantizedRows(4, _nibbles(blocks[:, :, 2:]), scales, scales * -8)
        case GGMLQuantizationType.Q4_1:
            return QuantizedRows(4, _nibbles(blocks[:, :, 4:]), scales, _halves(blocks, 2))
        case _:
            values = blocks[:, :, 2:] ^ np.uint8(ZERO_POINT)  # two's complement, 128 added
            return QuantizedRows(8, torch.from_numpy(values.reshape(len(rows), -1)), scales, None)


def _halves(blocks: Bytes, offset: int) -> torch.Tensor:
    """The float16 at ``offset`` in each block."""
    return torch.from_numpy(np.ascontiguousarray(blocks[:, :, offset : offset + 2])).view(torch.float16).squeeze(-1)


def _nibbles(packed: Bytes) -> torch.Tensor:
    """[rows, groups, 16] -> [rows, inputs]: in each group the low nibbles, then the high nibbles."""
    nibbles = torch.from_numpy(np.ascontiguousarray(packed))
    return torch.cat((nibbles & 15, nibbles >> 4), dim=-1).flatten(1)
