"""The decoder of ``decoder.py``, computed by the compiled kernels: one call for all layers of a step.

What a token gets is a function of its own sequence alone, to the last bit, whatever else is in the step.
"""

from __future__ import annotations

from ctypes import Array
from typing import Final

import torch
from torch import Tensor, nn

from engine_svc.attention.cpu import CpuAttention, CpuStep, reason_against_kernel
from engine_svc.attention.interface import AttentionStep
from engine_svc.executors.cpu.weights import DTYPES, PackedWeights
from engine_svc.kernels import structures
from engine_svc.kernels.library import Kernels
from engine_svc.layers.linear import Linear
from engine_svc.layers.norm import QueryKeyNorm, RMSNorm
from engine_svc.layers.rotary import RotaryEmbedding
from engine_svc.models.config import DecoderConfig, HeadNorms
from engine_svc.models.decoder import DecoderLayer

_ACTIVATIONS: Final = {"silu": 0, "gelu_pytorch_tanh": 1}
_HEAD_NORMS: Final = {HeadNorms.NONE: 0, HeadNorms.EACH: 1, HeadNorms.TOGETHER: 2}


def reason_against_compiled(config: DecoderConfig, dtype: torch.dtype) -> str | None:
    """What of such a decoder the kernels do not compute, if anything; then ``decoder.py`` does."""
    if config.activation not in _ACTIVATIONS:
        return f"activation {config.activation}"
    if config.head_norms not in _HEAD_NORMS:
        return f"norms of {config.head_norms.value}"
    return reason_against_kernel(config.head_dim, dtype)


class CompiledDecoder:
    """See ``engine_svc.models.causal_lm.CausalLM``. Its attention backend must be ``CpuAttention``, always the same."""

    def __init__(self, weights: PackedWeights, kernels: Kernels) -> None:
        self.config = weights.decoder.config
        self.dtype = DTYPES[weights.format]
        self.attention_config = weights.decoder.attention_config
        self._kernels = kernels
        self._weights = weights
        self._views = _Views(weights)
        self._structure: structures.Decoder | None = None
        self._workspace = torch.empty(0, dtype=torch.uint8)

    def __call__(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep, rows: Tensor) -> Tensor:
        """See ``CausalLM``; what is returned is float32."""
        assert isinstance(attention, CpuStep)
        structure = self._structure_for(attention.backend)
        hidden = torch.empty((len(rows), self.config.hidden_size), dtype=torch.float32)
        tokens = structures.Tokens(input_ids.data_ptr(), positions.data_ptr(), rows.data_ptr(), len(rows))
        workspace, cache = self._workspace_for(structure, len(input_ids)), attention.backend.cache
        self._kernels.forward(structure, tokens, attention.pointers, cache, workspace, hidden)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """See ``CausalLM``; float32 -> float32"""
        structure = self._structure
        assert structure is not None, "hidden states come from a step"
        logits = torch.empty((len(hidden), self.config.vocab_size), dtype=torch.float32)
        workspace = self._workspace_for(structure, len(hidden))
        self._kernels.logits(structure, hidden.contiguous(), workspace, logits)
        return logits

    def _structure_for(self, backend: CpuAttention) -> structures.Decoder:
        if self._structure is None:
            self._structure = self._views.decoder(backend)
        return self._structure

    def _workspace_for(self, structure: structures.Decoder, num_tokens: int) -> Tensor:
        size = self._kernels.workspace_bytes(structure, num_tokens)
        if len(self._workspace) < size:
            self._workspace = torch.empty(size, dtype=torch.uint8)
        return self._workspace


class _Views:
    """The structures that the kernels take. Keeps what they point to."""

    def __init__(self, weights: PackedWeights) -> None:
        self.weights = weights
        self.model = weights.decoder.model
        config = weights.decoder.config
        ropes = list(dict.fromkeys(layer.rope for layer in config.layers))
        self.rotary = [RotaryEmbedding(config.head_dim, rope) for rope in ropes]
        self.kept: list[Tensor | Array[structures.Layer] | Array[structures.Rope]] = []

    def decoder(self, backend: CpuAttention) -> structures.Decoder:
        weights, config = self.weights, self.weights.decoder.config
        layers = (structures.Layer * len(config.layers))(*map(self._layer, range(len(config.layers))))
        ropes = (structures.Rope * len(self.rotary))(*map(self._rope, self.rotary))
        self.kept += [layers, ropes]
        embedding = weights.matrices["model.embed_tokens.weight"].structure()
        head = weights.matrices.get("lm_head.weight")
        return structures.Decoder(
            attention=backend.shape,
            embedding=embedding,
            head=structures.Linear((structures.Matrix * 3)(embedding if head is None else head.structure()), 1),
            layers=layers,
            ropes=ropes,
            norm=self._norm(self.model.norm, "model.norm"),
            num_layers=len(layers),
            num_ropes=len(ropes),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            format=weights.format,
            activation=_ACTIVATIONS[config.activation],
            head_norms=_HEAD_NORMS[config.head_norms],
            eps=config.norm.eps,
            embedding_scale=self.model.embedding_scale,
            logit_softcap=config.logit_softcap or 0.0,
        )

    def _layer(self, index: int) -> structures.Layer:
        layer, path = self.model.layers[index], f"model.layers.{index}"
        assert isinstance(layer, DecoderLayer)
        query_norm, key_norm = self._head_norms(layer.self_attn.head_norm, f"{path}.self_attn.head_norm")
        return structures.Layer(
            qkv=self._linear(layer.self_attn.qkv, f"{path}.self_attn.qkv"),
            out=self._linear(layer.self_attn.out, f"{path}.self_attn.out"),
            gate_up=self._linear(layer.mlp.gate_up, f"{path}.mlp.gate_up"),
            down=self._linear(layer.mlp.down, f"{path}.mlp.down"),
            before_attention=self._norm(layer.before_attention, f"{path}.before_attention"),
            after_attention=self._norm(layer.after_attention, f"{path}.after_attention"),
            before_mlp=self._norm(layer.before_mlp, f"{path}.before_mlp"),
            after_mlp=self._norm(layer.after_mlp, f"{path}.after_mlp"),
            query_norm=query_norm,
            key_norm=key_norm,
            window=self.weights.decoder.config.layers[index].window or 0,
            rope=self.model.rotary_of_layer[index],
        )

    def _linear(self, linear: Linear, path: str) -> structures.Linear:
        names = [name for name, _ in linear.stored_weights(path) if name.endswith(".weight")]
        matrices = [self.weights.matrices[n].structure(self._bias(n)) for n in names]
        return structures.Linear((structures.Matrix * 3)(*matrices), len(matrices))

    def _bias(self, weight: str) -> Tensor | None:
        return self.weights.vectors.get(f"{weight.removesuffix('weight')}bias")

    def _norm(self, norm: nn.Module, path: str) -> int | None:
        if not isinstance(norm, RMSNorm):
            return None
        ((name, _),) = norm.stored_weights(path)
        return self._norm_weights(name)

    def _head_norms(self, norm: nn.Module, path: str) -> tuple[int | None, int | None]:
        if not isinstance(norm, QueryKeyNorm):
            return None, None
        query, key = (self._norm_weights(name) for name, _ in norm.stored_weights(path))
        return query, key

    def _norm_weights(self, name: str) -> int:
        """Address of the weights as they are multiplied."""
        weights = self.weights.vectors[name] + (self.weights.decoder.config.norm.weight_offset or 0.0)
        self.kept.append(weights)
        return weights.data_ptr()

    def _rope(self, rotary: RotaryEmbedding) -> structures.Rope:
        return structures.Rope(rotary.inv_freq.data_ptr(), len(rotary.inv_freq), rotary.magnitude)
