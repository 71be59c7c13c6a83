from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine_svc.layers.fixed_tile import TILE, FixedTileProduct

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def product(outputs: int, inputs: int, *, bias: bool = False, dtype: torch.dtype = torch.float32) -> FixedTileProduct:
    generator = torch.Generator().manual_seed(outputs * 1000 + inputs)
    weight = torch.randn((outputs, inputs), generator=generator).to(dtype)
    return FixedTileProduct(weight, torch.randn(outputs, generator=generator).to(dtype) if bias else None)


@pytest.mark.parametrize("num_rows", [0, 1, TILE - 1, TILE, TILE + 1, 5 * TILE + 3])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (5, 6), (16, 32), (101, 24), (37, 1025)])
def test_product_equals_linear(num_rows: int, outputs: int, inputs: int) -> None:
    linear, x = product(outputs, inputs, bias=True, dtype=torch.float64), torch.randn(num_rows, inputs).double()
    assert linear._bias is not None

    expected = F.linear(x, linear.weight, linear._bias[:outputs])

    torch.testing.assert_close(linear(x), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=60)
@given(
    outputs=st.integers(1, 150),
    inputs=st.integers(1, 150),
    num_rows=st.integers(1, 50),
    position=st.integers(0, 60),
    dtype=st.sampled_from(DTYPES),
    num_threads=st.sampled_from([1, 2, 3]),
    bias=st.booleans(),
)
def test_a_row_does_not_depend_on_its_position_the_other_rows_or_the_threads(
    outputs: int, inputs: int, num_rows: int, position: int, dtype: torch.dtype, num_threads: int, bias: bool
) -> None:
    linear = product(outputs, inputs, bias=bias, dtype=dtype)
    row = torch.randn(inputs).to(dtype)
    torch.set_num_threads(1)
    alone = linear(row[None])[0]
    others = torch.randn(num_rows, inputs).to(dtype)
    position = min(position, num_rows)
    batch = torch.cat((others[:position], row[None], others[position:]))

    torch.set_num_threads(num_threads)

    assert torch.equal(linear(batch)[position], alone)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(960, 576), (576, 1536), (3, 2)])
def test_sizes_of_real_models_are_batch_invariant(size: tuple[int, int], dtype: torch.dtype) -> None:
    assert product(*size, dtype=dtype).is_batch_invariant()


def rounds_by_position(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = x @ weight.T
    out[-1] *= 1 + 2**-20
    return out


def rounds_by_other_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.T + x.abs().sum() * 2**-20


@pytest.mark.parametrize("library", [rounds_by_position, rounds_by_other_rows])
def test_a_library_that_is_not_batch_invariant_is_detected(
    monkeypatch: pytest.MonkeyPatch, library: Callable[[Tensor, Tensor, Tensor | None], Tensor]
) -> None:
    linear = product(20, 30)
    assert linear.is_batch_invariant()
    monkeypatch.setattr("engine_svc.layers.fixed_tile.F.linear", library)

    assert not linear.is_batch_invariant()


def test_nan_weights_do_not_fail_the_check() -> None:
    weight = torch.randn(20, 30)
    weight[3, 5] = torch.nan

    assert FixedTileProduct(weight, None).is_batch_invariant()


def test_weights_are_not_copied_if_no_padding_is_needed() -> None:
    weight = torch.randn(32, 48)

    assert FixedTileProduct(weight, None).weight.data_ptr() == weight.data_ptr()
    assert torch.equal(FixedTileProduct(weight[:31], None).weight, weight[:31])
