from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from engine_svc.layers.activation import ACTIVATIONS


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_what_transformers_means_by_the_name(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-9, 9, 101, dtype=dtype)

    assert torch.equal(ACTIVATIONS[name](x), ACT2FN[name](x))
