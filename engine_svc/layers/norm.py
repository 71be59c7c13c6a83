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
    """``weight * x / sqrt(mean(x^2) + eps)``, in float32 and rounded where transformers rounds.

    ``name`` is what a checkpoint calls it, where that is not its name in the model.
    """

    def __init__(self, dim: int, config: NormConfig, *, dtype: torch.dtype, name: str | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.config = config
        self.name = name
        self.weight = nn.Parameter(torch.empty(dim, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim]"""
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.eps)
        if self.config.weight_offset is None:
            return self.weight * normed.to(x.dtype)
        return (normed * (self.config.weight_offset + self.weight.float())).to(x.dtype)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{path if self.name is None else beside(path, self.name)}.weight", self.weight.data


class HeadNorm(RMSNorm):
    """Norms queries or keys: each head for itself if ``dim`` is the size of one, else those of a token together."""

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, heads, head_dim] -> [tokens, heads, head_dim]"""
        return super().forward(x.reshape(len(x), -1, self.dim)).view(x.shape)
