"""Rows of logits in CPU memory, with numpy: it has unsigned integers, and less overhead per operation than torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine_svc.constraint import Mask
from engine_svc.sampling.draw import deadlines
from engine_svc.sampling.noise import Keys, TokenIds, token_hashes
from engine_svc.sampling.row_operations import Entries, Values


class CpuRows:
    """See ``engine_svc.sampling.row_operations.RowOperations``."""

    def best(self, logits: Tensor) -> tuple[TokenIds, Values]:
        values = _values(logits)
        token_ids = values.argmax(axis=-1)
        return token_ids, values[np.arange(len(values)), token_ids]

    def read(self, scores: Tensor, at: Entries) -> Values:
        return _values(scores)[at]

    def change(self, logits: Tensor, at: Entries, change: Callable[[Values], Values]) -> None:
        values = _values(logits)
        values[at] = change(values[at])

    def mask(self, logits: Tensor, row: int, allowed: Mask, floor: float) -> None:
        values = _values(logits)[row]
        values[:] = np.where(allowed, values.clip(min=np.float32(floor)), -np.inf)

    def scaled(self, logits: Tensor, temperatures: Values) -> Tensor:
        values = _values(logits)
        best = values.argmax(axis=-1)[:, None]
        peaks = np.take_along_axis(values, best, axis=-1).clip(min=np.finfo(np.float32).min)
        with np.errstate(over="ignore"):  # a difference of huge logits, or its quotient, may be -inf: impossible
            scores = (values - peaks) / temperatures[:, None]
        np.put_along_axis(scores, best, np.float32(0.0), axis=-1)
        return torch.from_numpy(scores)

    def contenders(self, scores: Tensor, keys: Keys) -> Entries:
        values = _values(scores)
        vocab = np.arange(values.shape[1])
        uniform = token_hashes(keys[:, None], vocab).astype(np.float32)
        uniform *= np.float32(2.0**-32)
        limits = deadlines(keys, values.argmax(axis=-1))[:, None]
        # Far faster than nonzero() in two dimensions.
        return np.divmod(np.flatnonzero(uniform < limits * np.exp(values)), values.shape[1])


def _values(rows: Tensor) -> npt.NDArray[np.float32]:
    """The same memory."""
    values: npt.NDArray[np.float32] = rows.numpy()
    return values
