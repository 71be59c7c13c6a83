"""A vector for each token of a flat batch, from an encoder or from a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final, Protocol

import torch
from torch import Tensor

from engine_svc.attention.backends import create_backend
from engine_svc.attention.bidirectional import WholeSequences
from engine_svc.attention.interface import AttentionStep, PagedBatch
from engine_svc.models.decoder import Decoder
from engine_svc.models.encoder import Encoder

_BLOCK_SIZE: Final = 16


class TokenVectors(Protocol):
    """A model without its output matrix."""

    def __call__(self, input_ids: Tensor, lengths: Sequence[int]) -> Tensor:
        """Texts of these lengths, one after the other, int64 [tokens] -> [tokens, hidden]"""


class EncoderVectors:
    """Each token sees all tokens of its text."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __call__(self, input_ids: Tensor, lengths: Sequence[int]) -> Tensor:
        vectors: Tensor = self._encoder(input_ids, _positions(lengths), WholeSequences(lengths))
        return vectors


class DecoderVectors:
    """Each token sees those before it, and no other pass or layer reads its keys.

    So the cache of a single layer serves all layers that have the same window. ``max_num_tokens`` and
    ``max_num_texts`` are those of a pass; ``backend`` as in ``engine_svc.attention.backends``.
    """

    def __init__(self, decoder: Decoder, *, backend: str, max_num_tokens: int, max_num_texts: int) -> None:
        self._model = decoder.model
        config = decoder.attention_config
        self._windows = config.windows
        # Every text begins a block of its own.
        num_blocks = max_num_tokens // _BLOCK_SIZE + max_num_texts
        self._backends = {
            window: create_backend(
                backend, replace(config, windows=(window,)), num_blocks=num_blocks, block_size=_BLOCK_SIZE
            )
            for window in dict.fromkeys(config.windows)
        }

    def __call__(self, input_ids: Tensor, lengths: Sequence[int]) -> Tensor:
        batch = _whole_texts(lengths)
        steps = {window: backend.begin(batch) for window, backend in self._backends.items()}
        attention = _EveryLayer([steps[window] for window in self._windows])
        vectors: Tensor = self._model.norm(self._model(input_ids, _positions(lengths), attention))
        return vectors


class _EveryLayer:
    """See ``engine_svc.attention.interface.AttentionStep``. Each layer has a step for one layer."""

    def __init__(self, steps: Sequence[AttentionStep]) -> None:
        self._steps = steps

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self._steps[layer].attend(0, query, key, value)


def _positions(lengths: Sequence[int]) -> Tensor:
    return torch.cat([torch.arange(length) for length in lengths])


def _whole_texts(lengths: Sequence[int]) -> PagedBatch:
    """Texts that have nothing in the cache yet, in its first blocks."""
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
