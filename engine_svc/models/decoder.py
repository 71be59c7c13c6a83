"""The decoder that all families share: pre-norm attention and gated MLP with residuals."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine_svc.attention.interface import AttentionConfig, AttentionStep
from engine_svc.layers.linear import Embedding, Linear
from engine_svc.layers.norm import RMSNorm
from engine_svc.layers.rotary import RotaryEmbedding, Rotation, rotate
from engine_svc.models.config import DecoderConfig


class Attention(nn.Module):
    """Attention of one layer."""

    def __init__(self, config: DecoderConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        parts = {
            name: heads * config.head_dim
            for name, heads in zip(("q_proj", "k_proj", "v_proj"), self.heads, strict=True)
        }
        self.qkv = Linear(config.hidden_size, parts, bias=config.attention_bias, dtype=dtype)
        self.out = Linear(parts["q_proj"], {"o_proj": config.hidden_size}, bias=config.attention_bias, dtype=dtype)

    def forward(self, x: Tensor, rotation: Rotation, attention: AttentionStep) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        num_heads, num_kv_heads, _ = self.heads
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim))  # [tokens, heads + 2 * kv_heads, head_dim]
        rotated = rotate(qkv[:, : num_heads + num_kv_heads], rotation)
        query, key = torch.split(rotated, [num_heads, num_kv_heads], dim=1)
        attended = attention.attend(self.layer, query, key, qkv[:, num_heads + num_kv_heads :])
        return self.out(attended.flatten(1))  # type: ignore[no-any-return]


class GatedMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))``."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        inner, outer = config.intermediate_size, config.hidden_size
        self.gate_up = Linear(outer, {"gate_proj": inner, "up_proj": inner}, bias=config.mlp_bias, dtype=dtype)
        self.down = Linear(inner, {"down_proj": outer}, bias=config.mlp_bias, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """One layer."""

    def __init__(self, config: DecoderConfig, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        self.self_attn = Attention(config, layer, dtype)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)
        self.mlp = GatedMLP(config, dtype)

    def forward(self, x: Tensor, rotation: Rotation, attention: AttentionStep) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        x = x + self.self_attn(self.input_layernorm(x), rotation, attention)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Model(nn.Module):
    """Everything below the output matrix."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.rotary = RotaryEmbedding(config.head_dim, config.rope)
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype)
        self.layers = nn.ModuleList(DecoderLayer(config, layer, dtype) for layer in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)

    def forward(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep) -> Tensor:
        """Token ids and positions, int64 [tokens] -> what the last layer leaves, not normed [tokens, hidden]"""
        rotation = self.rotary(positions)
        x: Tensor = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, rotation, attention)
        return x


class Decoder(nn.Module):
    """A causal language model. Names of submodules that hold weights are those of Hugging Face checkpoints."""

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
        config = self.config
        return AttentionConfig(
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=self.dtype,
            window=config.sliding_window,
        )

    @property
    def unused_weights(self) -> tuple[str, ...]:
        """Ends of the names of stored tensors that checkpoints may have and the model computes or shares."""
        return ("rotary_emb.inv_freq", "lm_head.weight") if self.lm_head is None else ("rotary_emb.inv_freq",)

    def forward(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep, rows: Tensor) -> Tensor:
        """Logits of the tokens at ``rows``.

        ``input_ids`` and ``positions`` int64 [tokens], ``rows`` int64 [rows] -> [rows, vocab_size]
        """
        hidden = self.model.norm(self.model(input_ids, positions, attention)[rows])
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return head.logits(hidden)
