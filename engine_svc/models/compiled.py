"""The decoder of ``decoder.py``, computed by the compiled kernels: one call for all layers of a step.

What a token gets is a function of the tokens before it alone, to the last bit, whatever else is in the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import pointer
from typing import Final

import torch
from torch import Tensor, nn

from engine_svc.attention.cpu import CpuStep
from engine_svc.attention.interface import AttentionConfig, AttentionStep
from engine_svc.kernels import structures
from engine_svc.kernels.library import Kernels
from engine_svc.kernels.packing import Format, PackedMatrix, pack
from engine_svc.layers.linear import Embedding, Linear
from engine_svc.layers.norm import QueryKeyNorm, RMSNorm
from engine_svc.layers.rotary import RotaryEmbedding
from engine_svc.models.config import DecoderConfig, HeadNorms
from engine_svc.models.decoder import Decoder, DecoderLayer
from engine_svc.weights.checkpoint import Checkpoint, StoredTensor
from engine_svc.weights.loading import Loadable, match_weights
from engine_svc.weights.quantized import QuantizedRows, quantize

_ACTIVATIONS: Final = {"silu": 0, "gelu_pytorch_tanh": 1}
_HEAD_NORMS: Final = {HeadNorms.NONE: 0, HeadNorms.EACH: 1, HeadNorms.TOGETHER: 2}


class CompiledDecoder:
    """See ``engine_svc.models.causal_lm.CausalLM``. Its attention backend must be ``CpuAttention``."""

    def __init__(self, weights: CompiledWeights, kernels: Kernels) -> None:
        self.config = weights.decoder.config
        self.dtype = torch.float32 if weights.format is Format.FLOAT32 else torch.bfloat16
        self.attention_config = weights.decoder.attention_config
        self.attention_config = AttentionConfig(**{**_fields(self.attention_config), "dtype": self.dtype})
        self.weights = weights
        self.kernels = kernels
        self._structure: structures.Decoder | None = None
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._num_tokens = 0
