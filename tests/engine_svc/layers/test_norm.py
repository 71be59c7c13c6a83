from __future__ import annotations

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from engine_svc.layers.norm import NormConfig, RMSNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_it_is_transformers_norm_to_the_last_bit(dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(0)
    ours, theirs = RMSNorm(48, NormConfig(1e-5), dtype=dtype), LlamaRMSNorm(48, 1e-5).to(dtype)
    weight = torch.randn(48).to(dtype)
    ours.weight.data.copy_(weight)
    theirs.weight.data.copy_(weight)
    x = (torch.randn(9, 48) * scale).to(dtype)

    assert torch.equal(ours(x), theirs(x))
    assert ours(x).dtype == dtype


def test_a_vector_of_zeros_stays_finite() -> None:
    norm = RMSNorm(4, NormConfig(1e-5), dtype=torch.float32)
    norm.weight.data.fill_(2.0)

    assert norm(torch.zeros(1, 4)).tolist() == [[0.0] * 4]
