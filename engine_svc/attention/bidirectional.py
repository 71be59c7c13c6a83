"""Bidirectional attention for encoders: every token of a sequence attends to all its tokens, without a KV cache.

There is no padding. Adjacent sequences of equal length share one call. The output for a sequence depends on its own
tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor


class WholeSequences:
    """Whole sequences of these lengths, concatenated in a flat batch."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._shapes = [(sum(1 for _ in run), length) for length, run in groupby(lengths)]
        self._sizes = [count * length for count, length in self._shapes]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Each [tokens, heads, head_dim] -> [tokens, heads, head_dim]"""
        runs = zip(*(torch.split(x, self._sizes) for x in (query, key, value)), strict=True)
        return torch.cat([_attend(run, shape) for run, shape in zip(runs, self._shapes, strict=True)])


def _attend(run: tuple[Tensor, ...], shape: tuple[int, int]) -> Tensor:
    """Queries, keys and values of sequences of equal length; ``shape`` is (sequences, tokens of each).

    Each [tokens, heads, head_dim] -> [tokens, heads, head_dim]
    """
    query, key, value = (x.view(*shape, *x.shape[1:]).transpose(1, 2) for x in run)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(0, 1)
