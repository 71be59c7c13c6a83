"""torch on any device gives the same bits as numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine_svc.output import Sampled
from engine_svc.sampling.cpu_rows import CpuRows
from engine_svc.sampling.device_rows import DeviceRows
from engine_svc.sampling.draw import winners
from engine_svc.sampling.noise import position_keys, token_hashes
from engine_svc.sampling.sampler import Sampler, row_operations
from tests.engine_svc.sampling.given import sequence

CPU = torch.device("cpu")
NUMPY, TORCH = CpuRows(), DeviceRows(CPU)
VOCAB = 3000


def keys(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    generator = np.random.default_rng(7)
    seeds = [0, 1, 2**64 - 1, *generator.integers(0, 2**63, count - 3).tolist()]
    return position_keys(seeds, [3] * count, list(range(count)))


def scores(count: int, spread: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return NUMPY.scaled(torch.randn(count, VOCAB, generator=generator) * spread, np.ones(count, np.float32))


def test_noise_has_the_same_bits() -> None:
    expected = token_hashes(keys(50)[:, None], np.arange(VOCAB))

    assert np.array_equal(TORCH.token_hashes(keys(50), VOCAB).numpy(), expected.astype(np.int64))


@pytest.mark.parametrize("temperature", [1.0, 0.3, 1e-30])
def test_scaled_logits_have_the_same_bits(temperature: float) -> None:
    logits = torch.randn(20, VOCAB, generator=torch.Generator().manual_seed(1)) * 50
    logits[3, 7] = 3e38
    logits[4] = -torch.inf
    logits[5, ::2] = -torch.inf
    temperatures = np.full(20, temperature, np.float32)

    assert torch.equal(TORCH.scaled(logits, temperatures), NUMPY.scaled(logits, temperatures))


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 10.0, 100.0])
def test_the_same_token_wins_every_race(spread: float) -> None:
    rows, of_rows = scores(200, spread), keys(200)

    ours, theirs = (operations.contenders(rows, of_rows) for operations in (TORCH, NUMPY))

    assert (
        winners(TORCH.read(rows, ours), of_rows, *ours).tolist()
        == winners(NUMPY.read(rows, theirs), of_rows, *theirs).tolist()
    )


def test_the_best_token_is_the_first_of_equals() -> None:
    logits = torch.zeros(4, VOCAB)
    logits[1, 40:] = 2.0
    logits[2, 9] = torch.nan
    logits[3, 9] = torch.inf

    (ids, values), (expected_ids, expected_values) = TORCH.best(logits), NUMPY.best(logits)

    assert np.delete(ids, 2).tolist() == np.delete(expected_ids, 2).tolist() == [0, 40, 9]
    assert np.array_equal(values, expected_values, equal_nan=True)


def test_changes_and_masks_leave_the_rest_alone() -> None:
    at = np.array([0, 0, 2]), np.array([5, 9, 1])
    allowed = np.arange(VOCAB) % 3 == 0
    allowed.flags.writeable = False
    changed = []
    for operations in (TORCH, NUMPY):
        rows = scores(3)
        rows[1, :6] = -torch.inf
        operations.change(rows, at, lambda values: values * np.float32(3.0))
        operations.mask(rows, 1, allowed, -1e30)
        changed.append(rows)

    assert torch.equal(*changed)
    assert changed[0][1, :7].tolist()[:5] == [np.float32(-1e30), -np.inf, -np.inf, np.float32(-1e30), -np.inf]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0, "logprobs": 3},
    {"temperature": 0.7, "top_p": 0.9, "logprobs": 2},
    {"top_k": 40, "min_p": 0.01, "repetition_penalty": 1.3, "frequency_penalty": 0.2},
    {"logit_bias": ((4, 3.0), (9, -100.0)), "presence_penalty": 0.4},
    {"min_tokens": 9, "stop_token_ids": frozenset(range(0, 3000, 2)), "top_k": 3},
]


def test_a_whole_batch_is_sampled_alike() -> None:
    logits = torch.randn(60, VOCAB, generator=torch.Generator().manual_seed(2)) * 2
    logits[17] = torch.nan
    batch = [sequence([1, 2, row % 7], seed=row, **OPTIONS[row % len(OPTIONS)]) for row in range(60)]

    ours, theirs = (Sampler(operations).sample(logits, batch) for operations in (TORCH, NUMPY))

    assert [one for one in ours if isinstance(one, Sampled)] == [one for one in theirs if isinstance(one, Sampled)]
    assert [isinstance(one, FloatingPointError) for one in ours] == [row == 17 for row in range(60)]


def test_the_device_of_the_logits_decides() -> None:
    assert isinstance(row_operations(CPU), CpuRows)
    assert isinstance(row_operations(torch.device("cuda", 0)), DeviceRows)
