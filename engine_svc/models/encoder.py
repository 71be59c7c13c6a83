"""The encoder of the BERT family: bidirectional attention and an MLP, each with a LayerNorm after its residual.

It has no head and no pooler: the output is one hidden state per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine_svc.attention.bidirectional import WholeSequences
from engine_svc.layers.linear import Embedding, Linear
from engine_svc.layers.norm import LayerNorm
from engine_svc.weights.errors import ModelLoadError

_TOKEN_TYPE: Final = 0
"""The token type of every token: the first of two segments."""


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Sizes and switches of an encoder."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_layers: int
    num_positions: int
    """Rows of the position embedding"""
    first_position: int
    """Row of the first token of a text; RoBERTa reserves the rows before it for padding"""
    num_token_types: int
    norm_eps: float

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_heads:
            raise ModelLoadError(
                f"hidden_size {self.hidden_size} must be a multiple of num_attention_heads {self.num_heads}"
            )
        if self.max_position_embeddings < 1:
            raise ModelLoadError(
                f"max_position_embeddings must be greater than the first position {self.first_position} "
                f"(pad_token_id + 1), got {self.num_positions}"
            )

    @property
    def max_position_embeddings(self) -> int:
        """Maximum tokens of a text."""
        return self.num_positions - self.first_position


class Embeddings(nn.Module):
    """Sum of token, position and token-type embeddings, normalised."""

    def __init__(self, config: EncoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.first_position = config.first_position
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size, dtype=dtype)
        self.position_embeddings = Embedding(config.num_positions, config.hidden_size, dtype=dtype)
        self.token_type_embeddings = Embedding(config.num_token_types, config.hidden_size, dtype=dtype)
        self.norm = LayerNorm(config.hidden_size, config.norm_eps, dtype=dtype, name="LayerNorm")

    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """[tokens], [tokens] -> [tokens, hidden]"""
        x = self.word_embeddings(input_ids) + self.token_type_embeddings.weight[_TOKEN_TYPE]
        return self.norm(x + self.position_embeddings(positions + self.first_position))  # type: ignore[no-any-return]


class SelfAttention(nn.Module):
    """Attention of one layer."""

    def __init__(self, config: EncoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_heads
        self.qkv = Linear(size, {f"self.{name}": size for name in ("query", "key", "value")}, bias=True, dtype=dtype)
        self.out = Linear(size, {"output.dense": size}, bias=True, dtype=dtype)
        self.norm = LayerNorm(size, config.norm_eps, dtype=dtype, name="output.LayerNorm")

    def forward(self, x: Tensor, sequences: WholeSequences) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        return self.norm(x + self.out(sequences.attend(query, key, value).flatten(1)))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """One layer."""

    def __init__(self, config: EncoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        outer, inner = config.hidden_size, config.intermediate_size
        self.attention = SelfAttention(config, dtype)
        self.up = Linear(outer, {"intermediate.dense": inner}, bias=True, dtype=dtype)
        self.down = Linear(inner, {"output.dense": outer}, bias=True, dtype=dtype)
        self.norm = LayerNorm(outer, config.norm_eps, dtype=dtype, name="output.LayerNorm")

    def forward(self, x: Tensor, sequences: WholeSequences) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        x = self.attention(x, sequences)
        return self.norm(x + self.down(F.gelu(self.up(x))))  # type: ignore[no-any-return]


class Layers(nn.Module):
    """All layers, nested as in checkpoints."""

    def __init__(self, config: EncoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = nn.ModuleList(EncoderLayer(config, dtype) for _ in range(config.num_layers))

    def forward(self, x: Tensor, sequences: WholeSequences) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]"""
        for layer in self.layer:
            x = layer(x, sequences)
        return x


class Encoder(nn.Module):
    """Submodules that hold weights have the names of Hugging Face checkpoints, without the prefix of the model."""

    unused_weights: Final = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")
    """Name suffixes of stored tensors that are not needed for hidden states"""

    def __init__(self, config: EncoderConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        self.dtype = dtype
        self.embeddings = Embeddings(config, dtype)
        self.encoder = Layers(config, dtype)

    def forward(self, input_ids: Tensor, positions: Tensor, sequences: WholeSequences) -> Tensor:
        """Token ids and positions from 0, int64 [tokens] -> [tokens, hidden]"""
        return self.encoder(self.embeddings(input_ids, positions), sequences)  # type: ignore[no-any-return]
