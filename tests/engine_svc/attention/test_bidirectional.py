from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_svc.attention.bidirectional import WholeSequences

HEADS, DIM = 3, 4


def random(num_tokens: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(num_tokens)
    return [torch.randn(num_tokens, HEADS, DIM, generator=generator).to(dtype) for _ in range(3)]


def naive(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """One sequence, in float64."""
    query, key, value = query.double(), key.double(), value.double()
    scores = torch.einsum("qhd,khd->hqk", query, key) * DIM**-0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value)


@settings(max_examples=15)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_every_token_attends_to_its_whole_sequence(lengths: list[int]) -> None:
    query, key, value = random(sum(lengths))

    found = WholeSequences(lengths).attend(query, key, value)

    parts = zip(*(torch.split(x, lengths) for x in (query, key, value)), strict=True)
    torch.testing.assert_close(found.double(), torch.cat([naive(*part) for part in parts]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_batch_invariant(dtype: torch.dtype) -> None:
    lengths = [70, 70, 3, 70, 70]
    inputs = random(sum(lengths), dtype)

    together = torch.split(WholeSequences(lengths).attend(*inputs), lengths)

    alone = zip(*(torch.split(x, lengths) for x in inputs), strict=True)
    for length, found, part in zip(lengths, together, alone, strict=True):
        assert torch.equal(found, WholeSequences([length]).attend(*part))
