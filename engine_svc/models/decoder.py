"""The decoder shared by all families: attention and a gated MLP with residual connections.

It names no family: ``DecoderConfig`` holds all differences.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from engine_svc.attention.interface import AttentionConfig, AttentionStep
from engine_svc.layers.activation import ACTIVATIONS, softcap
from engine_svc.layers.linear import Embedding, Linear
from engine_svc.layers.norm import QueryKeyNorm, RMSNorm
from engine_svc.layers.rotary import RotaryEmbedding, Rotation, rotate
from engine_svc.models.config import DecoderConfig, QKNorm
from engine_svc.models.layout import attention_config, distinct_ropes, embedding_scale, unused_weights

_QKV: Final = ("q_proj", "k_proj", "v_proj")


class Attention(nn.Module):
    """Attention of one layer."""

    def __init__(self, config: DecoderConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.heads = [config.num_heads, config.num_kv_heads]
        sizes = [heads * config.head_dim for heads in (*self.heads, config.num_kv_heads)]
        parts = {"qkv_proj": sum(sizes)} if config.packed else dict(zip(_QKV, sizes, strict=True))
        self.qkv = Linear(config.hidden_size, parts, bias=config.qkv_bias, dtype=dtype)
        self.qk_norm = _qk_norm(config, dtype)
        self.out = Linear(sizes[0], {"o_proj": config.hidden_size}, bias=config.out_bias, dtype=dtype)

    def forward(self, x: Tensor, rotation: Rotation, attention: AttentionStep) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim))  # [tokens, heads + 2 * kv_heads, head_dim]
        num_rotated = sum(self.heads)
        rotated = rotate(self.qk_norm(qkv[:, :num_rotated]), rotation)
        query, key = torch.split(rotated, self.heads, dim=1)
        attended = attention.attend(self.layer, query, key, qkv[:, num_rotated:])
        return self.out(attended.flatten(1))  # type: ignore[no-any-return]


class GatedMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))``."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        inner, outer = config.intermediate_size, config.hidden_size
        parts = {"gate_up_proj": 2 * inner} if config.packed else {"gate_proj": inner, "up_proj": inner}
        self.gate_up = Linear(outer, parts, bias=config.mlp_bias, dtype=dtype)
        self.down = Linear(inner, {"down_proj": outer}, bias=config.mlp_bias, dtype=dtype)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.activation(gate) * up)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """One layer."""

    def __init__(self, config: DecoderConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        place = config.norm_placement
        self.before_attention = _norm(config, place.before_attention, dtype)
        self.self_attn = Attention(config, layer, dtype)
        self.after_attention = _norm(config, place.after_attention, dtype)
        self.before_mlp = _norm(config, place.before_mlp, dtype)
        self.mlp = GatedMLP(config, dtype)
        self.after_mlp = _norm(config, place.after_mlp, dtype)

    def forward(self, x: Tensor, rotation: Rotation, attention: AttentionStep) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        x = x + self.after_attention(self.self_attn(self.before_attention(x), rotation, attention))
        return x + self.after_mlp(self.mlp(self.before_mlp(x)))  # type: ignore[no-any-return]


class Model(nn.Module):
    """The decoder without its LM head."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        ropes = distinct_ropes(config)
        self.rotary = [RotaryEmbedding(config.head_dim, rope) for rope in ropes]
        self.rotary_of_layer = [ropes.index(layer.rope) for layer in config.layers]
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype)
        self.embedding_scale = embedding_scale(config, dtype)
        self.layers = nn.ModuleList(DecoderLayer(config, layer, dtype) for layer in range(len(config.layers)))
        self.norm = RMSNorm(config.hidden_size, config.norm, dtype=dtype)

    def forward(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep) -> Tensor:
        """Token ids and positions, int64 [tokens] -> output of the last layer, not normed [tokens, hidden]"""
        rotations = [rotary(positions) for rotary in self.rotary]
        x: Tensor = self.embed_tokens(input_ids) * self.embedding_scale
        for layer, rotary in zip(self.layers, self.rotary_of_layer, strict=True):
            x = layer(x, rotations[rotary], attention)
        return x


class Decoder(nn.Module):
    """A causal language model. Submodules that hold weights have the names of Hugging Face checkpoints."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        self.dtype = dtype
        self.model = Model(config, dtype)
        self.lm_head = (
            None if config.tie_word_embeddings else Embedding(config.vocab_size, config.hidden_size, dtype=dtype)
        )

    @property
    def attention_config(self) -> AttentionConfig:
        return attention_config(self.config, self.dtype)

    @property
    def unused_weights(self) -> tuple[str, ...]:
        return unused_weights(self.config)

    def forward(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep, rows: Tensor) -> Tensor:
        """Hidden states of the tokens at ``rows`` after the final norm, the input of ``logits``.

        ``input_ids`` and ``positions`` int64 [tokens], ``rows`` int64 [rows] -> [rows, hidden]
        """
        return self.model.norm(self.model(input_ids, positions, attention)[rows])  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, vocab_size]"""
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return softcap(head.logits(hidden), self.config.logit_softcap)


def _norm(config: DecoderConfig, name: str | None, dtype: torch.dtype) -> nn.Module:
    """The norm with this name in checkpoints; the identity if ``name`` is None."""
    return nn.Identity() if name is None else RMSNorm(config.hidden_size, config.norm, dtype=dtype, name=name)


def _qk_norm(config: DecoderConfig, dtype: torch.dtype) -> nn.Module:
    """The norm of queries and keys before rotation."""
    heads = (config.num_heads, config.num_kv_heads)
    match config.qk_norm:
        case QKNorm.NONE:
            return nn.Identity()
        case QKNorm.PER_HEAD:
            sizes = (config.head_dim, config.head_dim)
        case QKNorm.ALL_HEADS:
            sizes = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim)
    return QueryKeyNorm(heads, sizes, config.norm, dtype=dtype)
