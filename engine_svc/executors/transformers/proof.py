"""Checks that a loaded model has the same logits on the paged KV cache as with its own attention.

It costs five steps of a few tokens. It finds anything else that a model does across its batch and no other check knows
of: the sequences are cut into runs, mixed in steps, and their blocks are out of order.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine_svc.attention.interface import AttentionBackend, PagedBatch
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.executors.transformers.model import PagedModel
from engine_svc.weights.errors import ModelLoadError


class _Run(NamedTuple):
    """Tokens ``start`` to ``end`` of a sequence."""

    sequence: int
    start: int
    end: int


_LENGTHS: Final = (12, 9)
_STEPS: Final = ([_Run(0, 0, 6), _Run(1, 0, 5)], [_Run(1, 5, 9), _Run(0, 6, 11)], [_Run(0, 11, 12)])
_BLOCK_SIZE: Final = 4
_TABLES: Final = torch.tensor([[3, 0, 4], [1, 5, 2]], dtype=torch.int32)
_TOLERANCES: Final = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Limits of ``_difference``. In bfloat16, random models of 24 to 80 layers differed by 0.01 to 0.17."""
_SHARE: Final = 0.75
"""Share of the tokens that must be within the tolerance: rounding routes some to another expert"""


def random_sequences(vocab_size: int) -> list[Tensor]:
    """The sequences of the check, always the same, int64 [tokens]"""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(vocab_size, (length,), generator=generator) for length in _LENGTHS]


def own_logits(model: PreTrainedModel, sequences: list[Tensor]) -> Tensor:
    """With the model's own attention, one sequence at a time -> [tokens, vocab_size]"""
    return torch.cat([model(input_ids=sequence[None], use_cache=False).logits[0] for sequence in sequences])


def check(model: PagedModel, sequences: list[Tensor], expected: Tensor) -> None:
    """Raises ``ModelLoadError`` if the paged logits differ from ``expected`` [tokens, vocab_size]."""
    error = _difference(_paged_logits(model, sequences), expected)
    # Not `error > tolerance`, which is false for NaN.
    if not error <= _TOLERANCES[model.dtype]:
        raise ModelLoadError(
            f"its logits on the paged KV cache differ from its own by {error:.2g} of their spread: "
            "it has an unknown operation across tokens"
        )


def _difference(found: Tensor, expected: Tensor) -> float:
    """Distance of a token's logits relative to their spread: the ``_SHARE`` quantile over tokens."""
    found, expected = found.float(), expected.float()
    spread = (expected - expected.mean(-1, keepdim=True)).norm(dim=-1)
    return float(((found - expected).norm(dim=-1) / spread).quantile(_SHARE))


def _paged_logits(model: PagedModel, sequences: list[Tensor]) -> Tensor:
    """[tokens, vocab_size], one sequence after the other"""
    backend = ReferenceAttention(model.attention_config, num_blocks=_TABLES.numel(), block_size=_BLOCK_SIZE)
    pieces: dict[_Run, Tensor] = {}
    for step in _STEPS:
        logits = _compute(model, backend, sequences, step)
        pieces |= zip(step, torch.split(logits, [run.end - run.start for run in step]), strict=True)
    return torch.cat([pieces[run] for run in sorted(pieces)])


def _compute(model: PagedModel, backend: AttentionBackend, sequences: list[Tensor], step: list[_Run]) -> Tensor:
    positions = [torch.arange(run.start, run.end) for run in step]
    tables = _TABLES[[run.sequence for run in step]]
    slots = [
        table[p // _BLOCK_SIZE].long() * _BLOCK_SIZE + p % _BLOCK_SIZE
        for table, p in zip(tables, positions, strict=True)
    ]
    batch = PagedBatch(
        slot_mapping=torch.cat(slots),
        query_starts=torch.tensor([0, *accumulate(map(len, positions))], dtype=torch.int32),
        context_lens=torch.tensor([run.end for run in step], dtype=torch.int32),
        block_tables=tables,
    )
    input_ids = torch.cat([sequences[run.sequence][run.start : run.end] for run in step])
    return model(input_ids, torch.cat(positions), backend.begin(batch), torch.arange(len(input_ids)))
