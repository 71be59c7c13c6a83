from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from engine_svc.weights.gguf_blocks import KERNEL_TYPES, read_blocks


@pytest.mark.parametrize("type_", sorted(KERNEL_TYPES), ids=lambda type_: type_.name)
def test_blocks_dequantise_as_in_the_gguf_package(type_: gguf.GGMLQuantizationType) -> None:
    weights = np.random.default_rng(0).normal(size=(5, 96)).astype(np.float32)
    stored = gguf.quants.quantize(weights, type_)

    found = read_blocks(stored, type_)

    assert found.bits == (8 if type_ is gguf.GGMLQuantizationType.Q8_0 else 4)
    expected = torch.from_numpy(gguf.quants.dequantize(stored, type_))
    torch.testing.assert_close(found.dequantized(), expected, rtol=1e-6, atol=1e-6)
