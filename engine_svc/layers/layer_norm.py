"""The norm of encoders, with mean and bias."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine_svc.layers.naming import beside


class LayerNorm(nn.Module):
    """``weight * (x - mean) / sqrt(variance + eps) + bias``. ``name`` is that in checkpoints."""

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
        name = beside(path, self.name)
        yield f"{name}.weight", self.weight.data
        yield f"{name}.bias", self.bias.data
