"""Pooling: from one hidden state per token to one vector per text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_svc.embedding.interface import EmbeddingParams, Pooling

_MIN_NORM: Final = 1e-12
"""Shorter vectors are divided by this instead of their norm, as in sentence-transformers."""


def pool(hidden: Tensor, pooling: Pooling) -> Tensor:
    """[tokens, hidden] -> float32 [hidden]"""
    match pooling:
        case "cls":
            return hidden[0].float()
        case "last":
            return hidden[-1].float()
        case "mean":
            return hidden.float().mean(dim=0)
        case _:
            assert_never(pooling)


def truncate_and_normalize(vector: Tensor, params: EmbeddingParams) -> Tensor:
    """Truncate, then L2-normalise, so that a truncated Matryoshka embedding has norm 1. [hidden] -> [dimensions]"""
    truncated = vector[: params.dimensions]
    return F.normalize(truncated, dim=0, eps=_MIN_NORM) if params.normalize else truncated


def embeddings(
    hidden: Tensor, lengths: Sequence[int], params: Sequence[EmbeddingParams], default: Pooling
) -> list[Tensor]:
    """One vector per text of a flat batch. ``default`` is the pooling of texts that request none.

    [tokens, hidden] -> float32 [dimensions] each
    """
    texts = torch.split(hidden, list(lengths))
    return [
        truncate_and_normalize(pool(text, each.pooling or default), each)
        for text, each in zip(texts, params, strict=True)
    ]
