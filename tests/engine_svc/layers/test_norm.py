from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from engine_svc.layers.norm import LayerNorm, NormConfig, QueryKeyNorm, RMSNorm, rms_norm

KINDS = [(LlamaRMSNorm, None), (Olmo2RMSNorm, 0.0), (Gemma3RMSNorm, 1.0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
@pytest.mark.parametrize(("kind", "weight_offset"), KINDS)
def test_rms_norm_equals_transformers_bit_for_bit(
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


def test_rms_norm_of_zeros_is_finite() -> None:
    norm = RMSNorm(4, NormConfig(1e-5), dtype=torch.float32)
    norm.weight.data.fill_(2.0)

    assert norm(torch.zeros(1, 4)).tolist() == [[0.0] * 4]


def query_key_norm(*sizes: int) -> QueryKeyNorm:
    """Two query heads and one key head of size 6."""
    norm = QueryKeyNorm((2, 1), (sizes[0], sizes[1]), NormConfig(1e-5), dtype=torch.float32)
    norm.query_weight.data.copy_(torch.arange(1, sizes[0] + 1))
    norm.key_weight.data.copy_(torch.arange(2, sizes[1] + 2))
    return norm


def test_qk_norm_per_head() -> None:
    torch.manual_seed(0)
    norm, x = query_key_norm(6, 6), torch.randn(5, 3, 6)
    query, key = (partial(rms_norm, weight=weight, config=norm.config) for weight in norm.parameters())

    assert torch.equal(norm(x), torch.stack([query(x[:, 0]), query(x[:, 1]), key(x[:, 2])], dim=1))


def test_qk_norm_over_all_heads() -> None:
    torch.manual_seed(0)
    norm, x = query_key_norm(12, 6), torch.randn(5, 3, 6)

    normed = norm(x)

    assert torch.equal(normed[:, :2].flatten(1), rms_norm(x[:, :2].flatten(1), norm.query_weight, norm.config))
    assert torch.equal(normed[:, 2], rms_norm(x[:, 2], norm.key_weight, norm.config))


def test_qk_norm_weights_are_siblings_of_the_projections() -> None:
    norm = query_key_norm(12, 6)

    assert {name: len(weight) for name, weight in norm.stored_weights("layers.0.self_attn.qk_norm")} == {
        "layers.0.self_attn.q_norm.weight": 12,
        "layers.0.self_attn.k_norm.weight": 6,
    }


@pytest.mark.parametrize(
    ("name", "stored"),
    [(None, "model.layers.0.before_mlp.weight"), ("ffn_norm", "model.layers.0.ffn_norm.weight")],
)
def test_rms_norm_is_stored_under_its_module_name_or_its_checkpoint_name(name: str | None, stored: str) -> None:
    norm = RMSNorm(4, NormConfig(1e-5), dtype=torch.float32, name=name)

    assert [found for found, _ in norm.stored_weights("model.layers.0.before_mlp")] == [stored]


def layer_norm() -> LayerNorm:
    norm = LayerNorm(3, 0.5, dtype=torch.float32, name="LayerNorm")
    norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
    norm.bias.copy_(torch.tensor([0.0, 10.0, 20.0]))
    return norm


def test_layer_norm_subtracts_the_mean_and_divides_by_the_deviation_before_weight_and_bias() -> None:
    x = torch.tensor([[1.0, 2.0, 6.0]])
    scale = (14 / 3 + 0.5) ** -0.5

    assert layer_norm()(x)[0].tolist() == pytest.approx([-2 * scale, 10 - 2 * scale, 20 + 9 * scale])


def test_layer_norm_is_stored_under_its_checkpoint_name() -> None:
    stored = dict(layer_norm().stored_weights("encoder.layer.0.norm"))

    assert list(stored) == ["encoder.layer.0.LayerNorm.weight", "encoder.layer.0.LayerNorm.bias"]
    assert stored["encoder.layer.0.LayerNorm.bias"].tolist() == [0.0, 10.0, 20.0]
