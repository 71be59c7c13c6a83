from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from engine_svc.layers.norm import HeadNorm, NormConfig, RMSNorm

KINDS = [(LlamaRMSNorm, None), (Olmo2RMSNorm, 0.0), (Gemma3RMSNorm, 1.0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
@pytest.mark.parametrize(("kind", "weight_offset"), KINDS)
def test_it_is_transformers_norm_to_the_last_bit(
    kind: type[nn.Module], weight_offset: float | None, dtype: torch.dtype, scale: float
) -> None:
    torch.manual_seed(0)
    ours = RMSNorm(48, NormConfig(1e-5, weight_offset), dtype=dtype)
    theirs = kind(48, 1e-5).to(dtype)
    weight = torch.randn(48).to(dtype)
    ours.weight.data.copy_(weight)
    theirs.get_parameter("weight").data.copy_(weight)
    x = (torch.randn(9, 48) * scale).to(dtype)

    assert torch.equal(ours(x), theirs(x))
    assert ours(x).dtype == dtype


def test_a_vector_of_zeros_stays_finite() -> None:
    norm = RMSNorm(4, NormConfig(1e-5), dtype=torch.float32)
    norm.weight.data.fill_(2.0)

    assert norm(torch.zeros(1, 4)).tolist() == [[0.0] * 4]


def head_norm(dim: int) -> HeadNorm:
    norm = HeadNorm(dim, NormConfig(1e-5), dtype=torch.float32)
    norm.weight.data.copy_(torch.arange(1, dim + 1))
    return norm


def test_heads_are_normed_each_for_itself_if_there_are_weights_for_one() -> None:
    torch.manual_seed(0)
    norm, x = head_norm(6), torch.randn(5, 3, 6)

    assert torch.equal(norm(x), torch.stack([RMSNorm.forward(norm, x[:, head]) for head in range(3)], dim=1))


def test_heads_are_normed_together_if_there_are_weights_for_all() -> None:
    torch.manual_seed(0)
    norm, x = head_norm(18), torch.randn(5, 3, 6)

    assert torch.equal(norm(x).flatten(1), RMSNorm.forward(norm, x.flatten(1)))


@pytest.mark.parametrize(
    ("name", "stored"),
    [(None, "model.layers.0.before_mlp.weight"), ("ffn_norm", "model.layers.0.ffn_norm.weight")],
)
def test_it_is_stored_under_its_own_name_or_that_of_checkpoints(name: str | None, stored: str) -> None:
    norm = RMSNorm(4, NormConfig(1e-5), dtype=torch.float32, name=name)

    assert [found for found, _ in norm.stored_weights("model.layers.0.before_mlp")] == [stored]
