"""Turns what the scheduler planned into the tensors of a step."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine_svc.attention.interface import PagedBatch
from engine_svc.execution.runner import ScheduledSequence


@dataclass(frozen=True, slots=True)
class Step:
    """A flat batch: the runs of tokens of all sequences, one after the other."""

    input_ids: Tensor
    """int64 [tokens]"""
    positions: Tensor
    """int64 [tokens]"""
    rows: Tensor
    """Which tokens need logits: first those after which a token is sampled, then prompt rows, int64 [rows]

    A token is sampled after the last known one of a sequence, and after each of its drafts.
    """
    num_samples: int
    paged: PagedBatch


def prepare(batch: SequenceOf[ScheduledSequence], block_size: int) -> Step:
    """``batch`` has one entry at least, and no empty run."""
    counts = np.array([entry.num_tokens for entry in batch])
    starts = np.array([entry.start for entry in batch])
    ends = np.cumsum(counts)
    first_rows = ends - counts
    owners = np.repeat(np.arange(len(batch)), counts)  # [tokens]
    positions = np.arange(ends[-1]) - (first_rows - starts)[owners]
    tables = _block_tables(batch)
    slots = tables[owners, positions // block_size].astype(np.int64) * block_size + positions % block_size
    tokens = [token for entry in batch for token in entry.token_ids]
    samples = [
        row
        for entry, end in zip(batch, ends, strict=True)
        if entry.samples
        for row in range(end - 1 - len(entry.drafts), end)
    ]
    prompt_rows = [row - e.start + first for e, first in zip(batch, first_rows, strict=True) for row in e.prompt_rows]
    return Step(
        input_ids=torch.from_numpy(np.array(tokens, np.int64)),
        positions=torch.from_numpy(positions),
        rows=torch.from_numpy(np.array([*samples, *prompt_rows], np.int64)),
        num_samples=len(samples),
        paged=PagedBatch(
            slot_mapping=torch.from_numpy(slots),
            query_starts=torch.from_numpy(np.concatenate(([0], ends)).astype(np.int32)),
            context_lens=torch.from_numpy((starts + counts).astype(np.int32)),
            block_tables=torch.from_numpy(tables),
        ),
    )


def _block_tables(batch: SequenceOf[ScheduledSequence]) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """[sequences, most blocks], filled up with zeros."""
    longest = max(len(entry.sequence.block_table) for entry in batch)
    tables = np.zeros((len(batch), longest), np.int32)
    for row, entry in enumerate(batch):
        table = entry.sequence.block_table
        tables[row, : len(table)] = table
    return tables
