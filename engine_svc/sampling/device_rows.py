"""Rows of logits on any torch device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine_svc.constraint import Mask
from engine_svc.sampling.draw import deadlines
from engine_svc.sampling.noise import FACTORS, Keys, TokenIds, halves
from engine_svc.sampling.row_operations import Entries, Values

_LOW_32: Final = 0xFFFFFFFF
_LEAST: Final = torch.finfo(torch.float32).min


class DeviceRows:
    """See ``engine_svc.sampling.row_operations.RowOperations``."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def best(self, logits: Tensor) -> tuple[TokenIds, Values]:
        values, token_ids = logits.max(dim=-1)  # the first of equals
        return token_ids.cpu().numpy(), values.cpu().numpy()

    def read(self, scores: Tensor, at: Entries) -> Values:
        values: Values = scores[self._index(at)].cpu().numpy()
        return values

    def change(self, logits: Tensor, at: Entries, change: Callable[[Values], Values]) -> None:
        index = self._index(at)
        logits[index] = self._put(change(logits[index].cpu().numpy()))

    def mask(self, logits: Tensor, row: int, allowed: Mask, floor: float) -> None:
        logits[row] = torch.where(self._put(allowed), logits[row].clamp(min=floor), -torch.inf)

    def scaled(self, logits: Tensor, temperatures: Values) -> Tensor:
        best = logits.argmax(dim=-1, keepdim=True)
        peaks = logits.gather(1, best).clamp(min=_LEAST)
        return ((logits - peaks) / self._put(temperatures)[:, None]).scatter_(1, best, 0.0)

    def contenders(self, scores: Tensor, keys: Keys) -> Entries:
        best = scores.argmax(dim=-1).cpu().numpy()
        uniform = self.token_hashes(keys, scores.shape[1]).float() * 2.0**-32
        limits = self._put(deadlines(keys, best))[:, None]
        rows, ids = (uniform < limits * scores.exp()).nonzero(as_tuple=True)
        return rows.cpu().numpy(), ids.cpu().numpy()

    def token_hashes(self, keys: Keys, vocab_size: int) -> Tensor:
        """``engine_svc.sampling.noise.token_hashes`` of all tokens, int64 [rows, vocab]

        In signed integers of twice the size, which every device supports.
        """
        low, high = (self._put(half.astype(np.int64))[:, None] for half in halves(keys))
        x = torch.arange(vocab_size, device=self._device) ^ low
        x ^= x >> 16
        x = x * FACTORS[0] & _LOW_32
        x ^= high
        x ^= x >> 15
        x = x * FACTORS[1] & _LOW_32
        return x ^ x >> 15

    def _index(self, at: Entries) -> tuple[Tensor, Tensor]:
        return self._put(at[0]), self._put(at[1])

    def _put(self, values: npt.NDArray[Any]) -> Tensor:
        """A copy on the device."""
        return torch.tensor(values, device=self._device)
