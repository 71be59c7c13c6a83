"""A decoder's weights packed for the compiled kernels, straight from a checkpoint, one tensor at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine_svc.kernels.memory import Arena
from engine_svc.kernels.packing import Format, PackedMatrix, pack
from engine_svc.models.config import DecoderConfig
from engine_svc.models.layout import EMBEDDING, HEAD, DecoderLayout, decoder_layout, unused_weights
from engine_svc.models.precision import DTYPES, INTEGERS
from engine_svc.weights.checkpoint import Checkpoint, StoredTensor
from engine_svc.weights.loading import match_weights
from engine_svc.weights.quantized import QuantizedRows, quantize


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """Packed weights by their names in checkpoints."""

    config: DecoderConfig
    layout: DecoderLayout
    format: Format
    matrices: dict[str, PackedMatrix]
    vectors: dict[str, Tensor]
    """float32: norms and biases"""

    @property
    def embedding(self) -> PackedMatrix:
        return self.matrices[EMBEDDING]

    @property
    def head(self) -> PackedMatrix:
        """The output matrix, which may be the embedding."""
        return self.matrices.get(HEAD, self.embedding)


def pack_weights(checkpoint: Checkpoint, config: DecoderConfig, format_: Format, *, lanes: int) -> PackedWeights:
    """Load in one of ``DTYPES``. Errors as in ``engine_svc.weights.loading.load_weights``.

    In integer formats, matrices stored in 4 or 8 bits stay as they are, and all others are quantised to 8 bits.
    """
    layout = decoder_layout(config)
    weights, arena = PackedWeights(config, layout, format_, {}, {}), Arena()
    for tensor in match_weights(layout.shapes, checkpoint.tensors(), ignored=unused_weights(config)):
        if len(tensor.shape) == 1:
            weights.vectors[tensor.name] = _floats(tensor, torch.float32)
        else:
            weights.matrices[tensor.name] = pack(_matrix(tensor, format_), lanes, arena)
    return weights


def _matrix(tensor: StoredTensor, format_: Format) -> Tensor | QuantizedRows:
    if format_ in INTEGERS:
        return tensor.quantized() or quantize(_floats(tensor, torch.float32))
    return _floats(tensor, DTYPES[format_])


def _floats(tensor: StoredTensor, dtype: torch.dtype) -> Tensor:
    values = torch.empty(tensor.shape, dtype=dtype)
    tensor.copy_to(values)
    return values
