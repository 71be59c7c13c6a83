"""From a vector for each token to one for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_svc.embedding.interface import EmbeddingParams, Pooling

_MIN_NORM: Final = 1e-12
"""Shorter vectors are not stretched to length 1; as in sentence-transformers."""


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


def finish(vector: Tensor, params: EmbeddingParams) -> Tensor:
    """Cut, then normed, so that what is left of a Matryoshka embedding has length 1. [hidden] -> [dimensions]"""
    cut = vector[: params.dimensions]
    return F.normalize(cut, dim=0, eps=_MIN_NORM) if params.normalize else cut


def embeddings(hidden: Tensor, lengths: Sequence[int], params: Sequence[EmbeddingParams], own: Pooling) -> list[Tensor]:
    """One vector for each text of a flat batch. ``own`` is the pooling of those who ask for none.

    [tokens, hidden] -> float32 [dimensions] each
    """
    texts = torch.split(hidden, list(lengths))
    return [finish(pool(text, each.pooling or own), each) for text, each in zip(texts, params, strict=True)]
