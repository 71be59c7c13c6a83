"""The C structures that describe a decoder to the kernels: its sizes, and the addresses of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import Array
from typing import Final

import torch
from torch import Tensor

from engine_svc.attention.cpu import reason_against_kernel
from engine_svc.executors.cpu.weights import PackedWeights
from engine_svc.kernels import structures
from engine_svc.kernels.packing import Format, PackedMatrix
from engine_svc.layers.rotary import RotaryEmbedding
from engine_svc.models.config import DecoderConfig, QKNorm
from engine_svc.models.layout import (
    FINAL_NORM,
    LayerLayout,
    LinearLayout,
    distinct_ropes,
    embedding_scale,
)
from engine_svc.models.precision import DTYPES

_ACTIVATIONS: Final = {"silu": 0, "gelu_pytorch_tanh": 1}
_QK_NORM: Final = {QKNorm.NONE: 0, QKNorm.PER_HEAD: 1, QKNorm.ALL_HEADS: 2}


def reason_against_cpu(config: DecoderConfig, dtype: torch.dtype) -> str | None:
    """Why the kernels do not support such a decoder, None if they do; ``dtype`` is that of the KV cache."""
    if config.activation not in _ACTIVATIONS:
        return f"activation {config.activation}"
    if config.qk_norm not in _QK_NORM:
        return f"QK norm {config.qk_norm.value}"
    return reason_against_kernel(config.head_dim, dtype)


class DecoderStructure:
    """``structures.Decoder`` of packed weights. Keeps alive what it points to.

    ``tile_rows`` has for each format of weights from how many rows on they are multiplied by matrix tiles.
    """

    def __init__(
        self, weights: PackedWeights, attention: structures.AttentionShape, tile_rows: Mapping[Format, int]
    ) -> None:
        self._weights = weights
        self._tile_rows = tile_rows
        self._config = weights.config
        self._ropes = distinct_ropes(weights.config)
        self._rotary = [RotaryEmbedding(weights.config.head_dim, rope) for rope in self._ropes]
        self._kept: list[Tensor | Array[structures.Layer] | Array[structures.Rope]] = []
        self.structure = self._decoder(attention)

    def _decoder(self, attention: structures.AttentionShape) -> structures.Decoder:
        config, weights = self._config, self._weights
        layers = (structures.Layer * len(config.layers))(*map(self._layer, range(len(config.layers))))
        ropes = (structures.Rope * len(self._rotary))(*map(_rope, self._rotary))
        self._kept += [layers, ropes]
        return structures.Decoder(
            attention=attention,
            embedding=weights.embedding.structure(),
            head=structures.Linear((structures.Matrix * 3)(self._matrix(weights.head)), 1),
            layers=layers,
            ropes=ropes,
            norm=self._norm(FINAL_NORM),
            num_layers=len(layers),
            num_ropes=len(ropes),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            format=weights.format,
            activation=_ACTIVATIONS[config.activation],
            qk_norm=_QK_NORM[config.qk_norm],
            eps=config.norm.eps,
            embedding_scale=embedding_scale(config, DTYPES[weights.format]),
            logit_softcap=config.logit_softcap or 0.0,
        )

    def _layer(self, index: int) -> structures.Layer:
        names, config = self._weights.layout.layers[index], self._config.layers[index]
        return structures.Layer(
            **{name: self._linear(linear) for name, linear in _linears(names).items()},
            **{name: self._norm(norm) for name, norm in _norms(names).items()},
            window=config.window or 0,
            rope=self._ropes.index(config.rope),
        )

    def _linear(self, linear: LinearLayout) -> structures.Linear:
        matrices = [
            self._matrix(self._weights.matrices[f"{path}.weight"], self._weights.vectors.get(f"{path}.bias"))
            for path in linear.outputs
        ]
        return structures.Linear((structures.Matrix * 3)(*matrices), len(matrices))

    def _matrix(self, matrix: PackedMatrix, bias: Tensor | None = None) -> structures.Matrix:
        return matrix.structure(bias, tile_rows=self._tile_rows.get(matrix.format, 0))

    def _norm(self, name: str | None) -> int | None:
        """Address of the norm's weights, offset included."""
        if name is None:
            return None
        weights = self._weights.vectors[name] + (self._config.norm.weight_offset or 0.0)
        self._kept.append(weights)
        return weights.data_ptr()


def _linears(names: LayerLayout) -> dict[str, LinearLayout]:
    return {"qkv": names.qkv, "out": names.out, "gate_up": names.gate_up, "down": names.down}


def _norms(names: LayerLayout) -> dict[str, str | None]:
    return {
        "before_attention": names.before_attention,
        "after_attention": names.after_attention,
        "before_mlp": names.before_mlp,
        "after_mlp": names.after_mlp,
        "query_norm": names.query_norm,
        "key_norm": names.key_norm,
    }


def _rope(rotary: RotaryEmbedding) -> structures.Rope:
    return structures.Rope(rotary.inv_freq.data_ptr(), len(rotary.inv_freq), rotary.attention_factor)
