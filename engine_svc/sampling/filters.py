"""Which tokens may be drawn: min-p, then top-k, then top-p. The best token is always kept."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import Final

import torch
from torch import Tensor

from engine_svc.request import SamplingParams
from engine_svc.sampling.ranking import Ranking

_FIRST_COUNT: Final = 128
_GROWTH: Final = 8


def filters(params: SamplingParams, vocab_size: int) -> bool:
    """Whether any filter is active."""
    return params.top_p < 1.0 or params.min_p > 0.0 or 0 < params.top_k < vocab_size


def survivors(scores: Tensor, params: SequenceOf[SamplingParams]) -> tuple[Tensor, Tensor]:
    """The tokens that may be drawn, as rows and token ids, ordered by row.

    ``scores`` float32 [rows, vocab] are logarithms of unnormalised probabilities, 0 for the best token. Usually few
    tokens survive, so only the best are looked at, and more only when those are not enough.
    """
    ranking = Ranking(scores)
    limits = _Limits(scores, params)
    count = min(_FIRST_COUNT, scores.shape[1])
    while True:
        values, ids = ranking.best(count)
        keep, complete = limits.keep(values)
        if complete or count == scores.shape[1]:
            rows, ranks = keep.nonzero(as_tuple=True)
            return rows, ids[rows, ranks]
        count = min(_GROWTH * count, scores.shape[1])


class _Limits:
    """The filters of each row, as columns [rows, 1]."""

    def __init__(self, scores: Tensor, params: SequenceOf[SamplingParams]) -> None:
        vocab_size = scores.shape[1]
        top_k = [p.top_k if 0 < p.top_k < vocab_size else vocab_size for p in params]
        column = partial(_column, scores.device)
        self._top_k = column(top_k, torch.int64)
        self._top_p = column([p.top_p for p in params], torch.float64)
        self._least = column([p.min_p for p in params], torch.float32).log()
        self._truncated = (self._top_k < vocab_size) | (self._least > -torch.inf)
        # The best token's unnormalised probability is 1, so its softmax gives the total. A softmax is computed row by
        # row, whereas a plain sum may be split differently with more rows.
        self._total = 1.0 / scores.softmax(dim=-1).amax(dim=-1, keepdim=True).double()

    def keep(self, values: Tensor) -> tuple[Tensor, bool]:
        """Which of the best tokens survive [rows, count], and whether all survivors are among them.

        Top-p counts probability among the tokens that min-p and top-k keep.
        """
        within = (torch.arange(values.shape[1], device=values.device) < self._top_k) & (values >= self._least)
        within[:, 0] = True
        mass = values.double().exp().where(within, 0.0).cumsum(dim=-1)
        total = torch.where(self._truncated, mass[:, -1:], self._total)
        before = torch.nn.functional.pad(mass[:, :-1], (1, 0))
        # At 1.0 nothing is cut, whatever the rounding of the sums.
        keep = within & ((before < self._top_p * total) | (self._top_p >= 1.0))
        open_end = torch.where(self._truncated, within[:, -1:], keep[:, -1:])
        return keep, not bool(open_end.any())


def _column(device: torch.device, numbers: list[float] | list[int], dtype: torch.dtype) -> Tensor:
    return torch.tensor(numbers, dtype=dtype, device=device)[:, None]
