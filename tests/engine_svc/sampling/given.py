"""Builders for the inputs of sampler tests."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine_svc.constraint import Grammar
from engine_svc.request import Request, SamplingParams
from engine_svc.sampling import adjust as adjusting
from engine_svc.sampling import draw as drawing
from engine_svc.sampling.cpu_rows import CpuRows
from engine_svc.sampling.row_operations import RowOperations
from engine_svc.sampling.state import SamplingState
from engine_svc.scheduling.sequence import Sequence

operations: RowOperations = CpuRows()
"""The row operations of ``adjust`` and ``draw``; see the fixture of this name"""

_seq_ids = count()


def sequence(
    output: Iterable[int] = (),
    *,
    prompt: Iterable[int] = (0,),
    index: int = 0,
    eos: Iterable[int] = (),
    grammar: Grammar | None = None,
    **params: Any,
) -> Sequence:
    """A sequence with this output."""
    request = Request("r", tuple(prompt), SamplingParams(**params), frozenset(eos), grammar=grammar)
    return Sequence(request, index, next(_seq_ids), [*request.prompt_token_ids, *output])


def state(output: Iterable[int] = (), **given: Any) -> SamplingState:
    return SamplingState(sequence(output, **given))


def logits(*rows: list[float]) -> npt.NDArray[np.float32]:
    return np.array(rows, np.float32)


def adjust(rows: npt.NDArray[np.float32], states: list[SamplingState]) -> None:
    """Change ``rows`` [rows, vocab] in place."""
    adjusting.adjust(torch.from_numpy(rows), states, operations)


def draw(rows: npt.NDArray[np.float32], states: list[SamplingState]) -> npt.NDArray[np.int64]:
    """A token for each row."""
    return drawing.draw(torch.from_numpy(rows), states, operations)


def assert_drawn_from(token_ids: list[int], probabilities: npt.ArrayLike) -> None:
    """Chi-square test: the token counts fit these probabilities (up to 4.5 sigma)."""
    expected = np.asarray(probabilities, np.float64)
    expected = expected / expected.sum() * len(token_ids)
    seen = np.bincount(token_ids, minlength=len(expected))
    assert not seen[expected == 0].any(), f"impossible tokens came: {np.flatnonzero(seen * (expected == 0))}"
    expected, seen = expected[expected > 0], seen[expected > 0]
    assert expected.min() >= 5, "too few draws to judge"
    statistic, freedom = float(((seen - expected) ** 2 / expected).sum()), len(expected) - 1
    assert statistic < freedom + 4.5 * (2 * freedom) ** 0.5, (
        f"chi-square {statistic:.1f} with {freedom} degrees of freedom"
    )
