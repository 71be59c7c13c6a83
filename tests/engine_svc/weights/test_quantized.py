from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from engine_svc.weights import quantized
from engine_svc.weights.quantized import GROUP_SIZE, QuantizedRows, quantize


@given(rows=st.integers(1, 5), groups=st.integers(1, 4), scale=st.sampled_from([1e-6, 1e-3, 1.0, 100.0]))
def test_quantisation_error_is_at_most_half_a_step(rows: int, groups: int, scale: float) -> None:
    weights = torch.randn(rows, groups * GROUP_SIZE, generator=torch.Generator().manual_seed(rows + groups)) * scale

    found = quantize(weights).dequantized()

    largest = weights.view(rows, groups, GROUP_SIZE).abs().amax(-1, keepdim=True)
    # Half a step, and the rounding of the scale to float16, which is coarse for small scales.
    allowed = largest / 127 / 2 * 1.2 + 127 * 2.0**-25
    assert ((found - weights).view(rows, groups, GROUP_SIZE).abs() <= allowed).all()


class LargestResult(TorchDispatchMode):
    """Records the largest float32 result of any operation, in elements."""

    num_floats = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, (list, tuple)) else [result]:
            if made.dtype == torch.float32:
                self.num_floats = max(self.num_floats, made.numel())
        return result


def test_a_large_matrix_is_quantised_in_chunks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.randn(50, 40, generator=torch.Generator().manual_seed(1))
    whole = quantize(weights)
    monkeypatch.setattr(quantized, "_CHUNK_ELEMENTS", 300)

    with LargestResult() as largest_result:
        pieces = quantize(weights)

    assert torch.equal(pieces.values, whole.values)
    assert torch.equal(pieces.scales, whole.scales)
    assert largest_result.num_floats == 7 * 2 * GROUP_SIZE


def test_the_last_group_is_padded_with_zeros() -> None:
    found = quantize(torch.ones(2, 40))

    assert found.values.shape == (2, 64)
    torch.testing.assert_close(found.dequantized()[:, :40], torch.ones(2, 40), rtol=1e-3, atol=0)
    assert (found.dequantized()[:, 40:] == 0).all()


def test_zeros_are_exact() -> None:
    assert (quantize(torch.zeros(1, GROUP_SIZE)).dequantized() == 0).all()


def test_int4_has_minima() -> None:
    values = torch.arange(32, dtype=torch.uint8)[None] % 16
    rows = QuantizedRows(4, values, torch.tensor([[0.5]]).half(), torch.tensor([[-3.0]]).half())

    assert rows.dequantized().tolist() == [[0.5 * (i % 16) - 3.0 for i in range(32)]]
