"""Hidden states for each token of a flat batch, from an encoder or a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Protocol

import torch
from torch import Tensor

from engine_svc.attention.bidirectional import WholeSequences
from engine_svc.attention.interface import PagedBatch
from engine_svc.executors.cache import CacheSize
from engine_svc.executors.interface import HiddenStatesExecutor, PreparedStep
from engine_svc.models.encoder import Encoder

_BLOCK_SIZE: Final = 16


class HiddenStatesModel(Protocol):
    """A model without LM head."""

    def __call__(self, input_ids: Tensor, lengths: Sequence[int]) -> Tensor:
        """Concatenated texts of these lengths, int64 [tokens] -> [tokens, hidden]"""


class EncoderHiddenStates:
    """Bidirectional: each token attends to all tokens of its text."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __call__(self, input_ids: Tensor, lengths: Sequence[int]) -> Tensor:
        hidden: Tensor = self._encoder(input_ids, _positions(lengths), WholeSequences(lengths))
        return hidden


class DecoderHiddenStates:
    """Causal: each token attends to those before it. The KV cache of the executor holds one pass: see ``cache_for``."""

    def __init__(self, executor: HiddenStatesExecutor) -> None:
        self._executor = executor

    def __call__(self, input_ids: Tensor, lengths: Sequence[int]) -> Tensor:
        rows = torch.arange(len(input_ids))
        return self._executor.hidden_states(
            PreparedStep(input_ids, _positions(lengths), rows, num_samples=0, paged=_whole_texts(lengths))
        )


def cache_for(max_num_tokens: int, max_num_texts: int) -> CacheSize:
    """KV cache for a pass with these maximum tokens and texts. Pages are allocated by the OS on first use."""
    # Every text starts in a new block.
    return CacheSize(_BLOCK_SIZE, num_blocks=max_num_tokens // _BLOCK_SIZE + max_num_texts)


def _positions(lengths: Sequence[int]) -> Tensor:
    return torch.cat([torch.arange(length) for length in lengths])


def _whole_texts(lengths: Sequence[int]) -> PagedBatch:
    """Prefill of whole texts in the first blocks of the cache."""
    counts = [-(-length // _BLOCK_SIZE) for length in lengths]
    first_blocks = [0, *accumulate(counts)]
    tables = torch.zeros(len(lengths), max(counts), dtype=torch.int32)
    for table, first, count in zip(tables, first_blocks, counts, strict=False):
        table[:count] = torch.arange(first, first + count)
    starts = torch.tensor([first * _BLOCK_SIZE for first in first_blocks[:-1]])
    return PagedBatch(
        slot_mapping=_positions(lengths) + starts.repeat_interleave(torch.tensor(lengths)),
        query_starts=torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        context_lens=torch.tensor(lengths, dtype=torch.int32),
        block_tables=tables,
    )
