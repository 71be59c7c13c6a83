"""Normalisation layers: RMSNorm, QK norm, LayerNorm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine_svc.layers.linear import sibling


@dataclass(frozen=True, slots=True)
class NormConfig:
    """Parameters of RMSNorm that differ between families.

    ``weight_offset`` is added to the stored weights, which are then multiplied in float32. If it is None, the weights
    are multiplied after the result has been rounded to the model's dtype.
    """

    eps: float
    weight_offset: float | None = None


class RMSNorm(nn.Module):
    """RMSNorm with weights. ``name`` is the name in checkpoints, if it differs from the name of this module."""

    def __init__(self, dim: int, config: NormConfig, *, dtype: torch.dtype, name: str | None = None) -> None:
        super().__init__()
        self.config = config
        self.name = name
        self.weight = nn.Parameter(torch.empty(dim, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim]"""
        return rms_norm(x, self.weight, self.config)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{path if self.name is None else sibling(path, self.name)}.weight", self.weight.data


class QueryKeyNorm(nn.Module):
    """QK norm: RMSNorm over each head of queries and keys, or over all query heads and all key heads of a token.

    ``heads`` are the numbers of query and key heads; ``sizes`` are the elements normalised together: ``head_dim``, or
    ``heads * head_dim``.
    """

    def __init__(
        self, heads: tuple[int, int], sizes: tuple[int, int], config: NormConfig, *, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.heads = list(heads)
        self.config = config
        self.query_weight, self.key_weight = (
            nn.Parameter(torch.empty(size, dtype=dtype), requires_grad=False) for size in sizes
        )

    def forward(self, query_key: Tensor) -> Tensor:
        """Query heads, then key heads, [tokens, heads, head_dim] -> [tokens, heads, head_dim]"""
        query, key = torch.split(query_key, self.heads, dim=1)
        return torch.cat((self._norm(query, self.query_weight), self._norm(key, self.key_weight)), dim=1)

    def _norm(self, heads: Tensor, weight: Tensor) -> Tensor:
        grouped = heads.reshape(len(heads), -1, len(weight))
        return rms_norm(grouped, weight, self.config).view_as(heads)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        yield sibling(path, "q_norm.weight"), self.query_weight.data
        yield sibling(path, "k_norm.weight"), self.key_weight.data


class LayerNorm(nn.Module):
    """``weight * (x - mean) / sqrt(variance + eps) + bias``, for encoders. ``name`` is the name in checkpoints."""

    def __init__(self, dim: int, eps: float, *, dtype: torch.dtype, name: str) -> None:
        super().__init__()
        self.eps = eps
        self.name = name
        self.weight = nn.Parameter(torch.empty(dim, dtype=dtype), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(dim, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim]"""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        name = sibling(path, self.name)
        yield f"{name}.weight", self.weight.data
        yield f"{name}.bias", self.bias.data


def rms_norm(x: Tensor, weight: Tensor, config: NormConfig) -> Tensor:
    """``weight * x / sqrt(mean(x^2) + eps)``, in float32, rounded at the same points as in transformers.

    [..., dim], [dim] -> [..., dim]
    """
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + config.eps)
    if config.weight_offset is None:
        return weight * normed.to(x.dtype)
    return (normed * (config.weight_offset + weight.float())).to(x.dtype)
