from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from transformers.activations import ACT2FN

from engine_svc.layers.activation import ACTIVATIONS, BATCH_INVARIANT_ACTIVATIONS, softcap


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activation_equals_transformers(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-9, 9, 101, dtype=dtype)

    assert torch.equal(ACTIVATIONS[name](x), ACT2FN[name](x))


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_batch_invariant_activations_have_the_same_names() -> None:
    assert BATCH_INVARIANT_ACTIVATIONS.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("name", sorted(BATCH_INVARIANT_ACTIVATIONS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_invariant_activations_differ_by_rounding_only(name: str, dtype: torch.dtype) -> None:
    x = torch.cat((torch.linspace(-9, 9, 101), torch.tensor([-1e30, -200.0, -0.0, 0.0, 200.0, 1e30]))).to(dtype)

    torch.testing.assert_close(BATCH_INVARIANT_ACTIVATIONS[name](x), ACTIVATIONS[name](x))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("name", sorted(BATCH_INVARIANT_ACTIVATIONS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_result_does_not_depend_on_offset_size_or_threads(name: str, dtype: torch.dtype) -> None:
    function = BATCH_INVARIANT_ACTIVATIONS[name]
    x = (torch.randn(70_001, generator=torch.Generator().manual_seed(0)) * 4).to(dtype)
    alone = torch.cat([function(number[None]) for number in x[:2000]])

    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        whole = function(x)
        assert torch.equal(whole[:2000], alone)
        for first, last in ((1, 6), (3, 34), (7, 1008), (13, 33_014), (1, 69_002)):
            assert torch.equal(function(x[first:last]), whole[first:last])
            assert torch.equal(function(x[first:last].clone()), whole[first:last])


def test_softcap_bounds_large_values_and_keeps_small_ones() -> None:
    capped = softcap(torch.tensor([-1e6, -0.01, 0.0, 0.01, 5.0, 1e6]), 5.0)

    torch.testing.assert_close(capped, torch.tensor([-5.0, -0.01, 0.0, 0.01, 5 * math.tanh(1), 5.0]), rtol=1e-5, atol=0)


def test_softcap_of_none_returns_the_input() -> None:
    x = torch.tensor([-1e6, 1e6])

    assert softcap(x, None) is x
