"""Linear layers and embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine_svc.layers.fixed_tile import FixedTileProduct


class Linear(nn.Module):
    """``x W^T + b`` for one or several projections of the same input, merged into one matrix.

    ``parts`` maps the checkpoint names of the projections, siblings of this layer, to their numbers of outputs; the
    output concatenates them in that order. Computed by ``product`` if it is set, else by torch.
    """

    def __init__(self, in_features: int, parts: Mapping[str, int], *, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.parts = dict(parts)
        out_features = sum(parts.values())
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=dtype), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(out_features, dtype=dtype), requires_grad=False) if bias else None
        self.product: FixedTileProduct | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, in_features] -> [tokens, sum of the parts]"""
        return F.linear(x, self.weight, self.bias) if self.product is None else self.product(x)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        yield from self._split(self.weight, path, "weight")
        if self.bias is not None:
            yield from self._split(self.bias, path, "bias")

    def _split(self, parameter: Tensor, path: str, kind: str) -> Iterator[tuple[str, Tensor]]:
        views = torch.split(parameter.data, list(self.parts.values()))
        yield from zip((sibling(path, f"{name}.{kind}") for name in self.parts), views, strict=True)


class Embedding(nn.Module):
    """Token embeddings; also the LM head of a model with tied embeddings."""

    def __init__(self, num_embeddings: int, dim: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, dim, dtype=dtype), requires_grad=False)
        self.product: FixedTileProduct | None = None

    def forward(self, token_ids: Tensor) -> Tensor:
        """[tokens] -> [tokens, dim]"""
        return F.embedding(token_ids, self.weight)

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, dim] -> [rows, num_embeddings]"""
        return F.linear(hidden, self.weight) if self.product is None else self.product(hidden)

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{path}.weight", self.weight.data


def sibling(path: str, name: str) -> str:
    """The path of ``name`` in the same module as ``path``: ``sibling("a.b.c", "d")`` is ``a.b.d``."""
    parent, dot, _ = path.rpartition(".")
    return f"{parent}{dot}{name}"
