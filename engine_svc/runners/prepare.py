"""Turns a scheduled batch into the tensors of a step, on the executor's device."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine_svc.attention.interface import PagedBatch
from engine_svc.executors.interface import PreparedStep
from engine_svc.scheduling.step import ScheduledSequence


def prepare(batch: SequenceOf[ScheduledSequence], block_size: int, device: torch.device) -> PreparedStep:
    """``batch`` has at least one entry, and no entry without tokens. The tensors are on ``device``."""
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
    put = partial(_put, device)
    return PreparedStep(
        input_ids=put(np.array(tokens, np.int64)),
        positions=put(positions),
        rows=put(np.array([*samples, *prompt_rows], np.int64)),
        num_samples=len(samples),
        paged=PagedBatch(
            slot_mapping=put(slots),
            query_starts=put(np.concatenate(([0], ends)).astype(np.int32)),
            context_lens=put((starts + counts).astype(np.int32)),
            block_tables=put(tables),
        ),
    )


def _put(device: torch.device, values: npt.NDArray[Any]) -> Tensor:
    """The values on the device; on the CPU the same memory."""
    return torch.from_numpy(values).to(device, non_blocking=True)


def _block_tables(batch: SequenceOf[ScheduledSequence]) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """[sequences, maximum blocks], padded with zeros."""
    longest = max(len(entry.sequence.block_table) for entry in batch)
    tables = np.zeros((len(batch), longest), np.int32)
    for row, entry in enumerate(batch):
        table = entry.sequence.block_table
        tables[row, : len(table)] = table
    return tables
