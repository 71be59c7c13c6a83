"""Normalisation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """``weight * x / sqrt(mean(x^2) + eps)``, in float32 and rounded before the weight, as transformers does."""

    def __init__(self, dim: int, eps: float, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(dim, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> [..., dim]"""
        wide = x.float()
        variance = wide.pow(2).mean(-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(variance + self.eps)).to(x.dtype)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{path}.weight", self.weight.data
