"""Packed weights are at the positions that the layout defines."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine_svc.kernels import packing
from engine_svc.kernels.memory import Arena
from engine_svc.kernels.packing import Format, PackedMatrix, pack
from engine_svc.weights.quantized import GROUP_SIZE, QuantizedRows, quantize

sizes = st.integers(1, 70)
lanes = st.sampled_from([4, 8, 16])


def panel_and_lane(packed: PackedMatrix, output: int, lanes: int) -> tuple[Tensor, int]:
    """The panel of an output, and its lane."""
    return packed.panels[output // lanes], output % lanes


@given(outputs=sizes, inputs=sizes, lanes=lanes, dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_floats_are_packed_in_words_of_four_bytes(outputs: int, inputs: int, lanes: int, dtype: torch.dtype) -> None:
    weights = torch.arange(outputs * inputs).view(outputs, inputs).to(dtype)

    packed = pack(weights, lanes, Arena())

    assert packed.format is (Format.FLOAT32 if dtype == torch.float32 else Format.BFLOAT16)
    assert (packed.outputs, packed.inputs) == (outputs, inputs)
    per_word = 4 // dtype.itemsize
    for output in {0, outputs // 2, outputs - 1}:
        panel, lane = panel_and_lane(packed, output, lanes)
        values = panel.view(dtype).view(-1, lanes, per_word)[:, lane].flatten()
        assert torch.equal(values[:inputs], weights[output])
        assert (values[inputs:] == 0).all()


@given(outputs=sizes, groups=st.integers(1, 3), lanes=lanes)
def test_int8_is_packed_four_per_word_followed_by_scales(outputs: int, groups: int, lanes: int) -> None:
    rows = quantize(torch.randn(outputs, groups * GROUP_SIZE, generator=torch.Generator().manual_seed(outputs)))

    packed = pack(rows, lanes, Arena())

    assert packed.format is Format.INT8
    num_words = groups * GROUP_SIZE // 4
    for output in {0, outputs // 2, outputs - 1}:
        panel, lane = panel_and_lane(packed, output, lanes)
        words, scales = panel.split([num_words * lanes * 4, groups * lanes * 2])
        assert torch.equal(words.view(num_words, lanes, 4)[:, lane].flatten(), rows.values[output])
        assert torch.equal(scales.view(torch.float16).view(groups, lanes)[:, lane], rows.scales[output])


@given(outputs=sizes, groups=st.integers(1, 3), lanes=lanes)
def test_int4_is_packed_eight_per_word_followed_by_scales_and_minima(outputs: int, groups: int, lanes: int) -> None:
    values = torch.arange(outputs * groups * GROUP_SIZE).view(outputs, -1).mul(7).remainder(16).to(torch.uint8)
    scales = torch.randn(outputs, groups, generator=torch.Generator().manual_seed(outputs)).half()
    rows = QuantizedRows(4, values, scales, -scales)

    packed = pack(rows, lanes, Arena())

    assert packed.format is Format.INT4
    num_words = groups * GROUP_SIZE // 8
    for output in {0, outputs // 2, outputs - 1}:
        panel, lane = panel_and_lane(packed, output, lanes)
        words, halves = panel.split([num_words * lanes * 4, groups * lanes * 4])
        nibbles = words.view(num_words, lanes, 4)[:, lane]
        assert torch.equal(torch.stack((nibbles & 15, nibbles >> 4), dim=1).flatten(), values[output])
        assert torch.equal(halves.view(torch.float16).view(2, groups, lanes)[0, :, lane], scales[output])
        assert torch.equal(halves.view(torch.float16).view(2, groups, lanes)[1, :, lane], -scales[output])


@pytest.mark.parametrize("weights", [torch.arange(70 * 64.0).view(70, 64), quantize(torch.eye(70, 64))], ids=type)
def test_a_large_matrix_is_packed_in_chunks_of_panels(
    weights: Tensor | QuantizedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pack(weights, 16, Arena())
    monkeypatch.setattr(packing, "_CHUNK_BYTES", 2 * whole.panels.shape[1])

    assert torch.equal(pack(weights, 16, Arena()).panels, whole.panels)


@pytest.mark.parametrize("bias", [None, torch.ones(5)])
def test_the_structure_has_the_addresses_of_panels_and_bias(bias: Tensor | None) -> None:
    packed = pack(torch.ones(5, 7), 16, Arena())

    structure = packed.structure(bias)

    assert structure.panels == packed.panels.data_ptr()
    assert structure.bias == (None if bias is None else bias.data_ptr())
    assert (structure.outputs, structure.inputs, structure.format) == (5, 7, 0)
    assert structure.panel_bytes == packed.panels.shape[1] == 7 * 16 * 4
