"""Normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine_svc.layers.naming import beside


@dataclass(frozen=True, slots=True)
class NormConfig:
    """Where families differ: ``weight_offset`` is added to the stored weights, which then act in float32.

    Without one, the weights act after the result has been rounded to the model's type.
    """

    eps: float
    weight_offset: float | None = None


class RMSNorm(nn.Module):
    """A norm with its weights. ``name`` is what a checkpoint calls it, where that is not its name in the model."""

    def __init__(self, dim: int, config: NormConfig, *, dtype: torch.dtype, name: str | None = None) -> None:
        super().__init__()
        self.config = config
        self.name = name
        self.weight = nn.Parameter(torch.empty(dim, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim]"""
        return rms_norm(x, self.weight, self.config)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{path if self.name is None else beside(path, self.name)}.weight", self.weight.data


class QueryKeyNorm(nn.Module):
    """Norms the heads of queries and those of keys: each for itself, or those of a token together.

    ``heads`` are their numbers, ``sizes`` how many elements are normed together: those of one head, or of all.
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
        """Heads of queries, then of keys, [tokens, heads, head_dim] -> [tokens, heads, head_dim]"""
        query, key = torch.split(query_key, self.heads, dim=1)
        return torch.cat((self._norm(query, self.query_weight), self._norm(key, self.key_weight)), dim=1)

    def _norm(self, heads: Tensor, weight: Tensor) -> Tensor:
        grouped = heads.reshape(len(heads), -1, len(weight))
        return rms_norm(grouped, weight, self.config).view_as(heads)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        yield beside(path, "q_norm.weight"), self.query_weight.data
        yield beside(path, "k_norm.weight"), self.key_weight.data


def rms_norm(x: Tensor, weight: Tensor, config: NormConfig) -> Tensor:
    """``weight * x / sqrt(mean(x^2) + eps)``, in float32 and rounded where transformers rounds.

    [..., dim], [dim] -> [..., dim]
    """
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + config.eps)
    if config.weight_offset is None:
        return weight * normed.to(x.dtype)
    return (normed * (config.weight_offset + weight.float())).to(x.dtype)
