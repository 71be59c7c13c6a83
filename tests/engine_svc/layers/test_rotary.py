from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from engine_svc.layers.rotary import (
    LinearScaling,
    Llama3Scaling,
    PerFrequencyScaling,
    RopeConfig,
    RopeScaling,
    RotaryEmbedding,
    inverse_frequencies,
    rotate,
)
from tests.engine_svc import tiny

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
SCALINGS: list[tuple[dict[str, Any], RopeScaling | None]] = [
    ({"rope_type": "default"}, None),
    ({"rope_type": "linear", "factor": 4.0}, LinearScaling(4.0)),
    ({"rope_type": "llama3", **LLAMA3}, Llama3Scaling(8.0, 1.0, 4.0, 64)),
]


@pytest.mark.parametrize(("theirs", "ours"), SCALINGS)
@pytest.mark.parametrize("head_dim", [2, 6, 64])
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_frequencies_equal_transformers(
    theirs: dict[str, Any], ours: RopeScaling | None, head_dim: int, theta: float
) -> None:
    config = tiny.llama(head_dim=head_dim, rope_parameters={"rope_theta": theta, **theirs})
    expected = LlamaRotaryEmbedding(config).inv_freq

    torch.testing.assert_close(inverse_frequencies(head_dim, RopeConfig(theta, ours)), expected, rtol=1e-6, atol=0)


def test_per_frequency_factors_divide_each_frequency() -> None:
    plain = inverse_frequencies(6, RopeConfig(10000.0))

    scaled = inverse_frequencies(6, RopeConfig(10000.0, PerFrequencyScaling((1.0, 2.0, 8.0))))

    assert torch.equal(scaled, plain / torch.tensor([1.0, 2.0, 8.0]))


@pytest.mark.parametrize(("theirs", "ours"), SCALINGS)
def test_rotation_equals_transformers(theirs: dict[str, Any], ours: RopeScaling | None) -> None:
    torch.manual_seed(0)
    positions = torch.tensor([0, 1, 2, 77, 4096, 100_000])
    x = torch.randn(6, 3, 8)
    config = tiny.llama(head_dim=8, rope_parameters={"rope_theta": 10000.0, **theirs})
    cos, sin = LlamaRotaryEmbedding(config)(x, positions[None])
    expected, _ = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)

    rotated = rotate(x, RotaryEmbedding(8, RopeConfig(10000.0, ours))(positions))

    torch.testing.assert_close(rotated, expected[0].transpose(0, 1))


def test_partial_rotary_factor_leaves_the_rest_of_a_head_unchanged() -> None:
    torch.manual_seed(0)
    x, positions = torch.randn(3, 2, 8), torch.tensor([0, 5, 9])
    whole = RotaryEmbedding(6, RopeConfig(10000.0))(positions)

    rotated = rotate(x, RotaryEmbedding(8, RopeConfig(10000.0, None, 0.75))(positions))

    assert torch.equal(rotated[..., :6], rotate(x[..., :6], whole))
    assert torch.equal(rotated[..., 6:], x[..., 6:])


def test_attention_factor_scales_the_rotated_vectors() -> None:
    x, factors = torch.randn(1, 2, 4), (1.0, 2.0)
    position = torch.tensor([7])
    plain = rotate(x, RotaryEmbedding(4, RopeConfig(10000.0, PerFrequencyScaling(factors)))(position))

    scaled = rotate(x, RotaryEmbedding(4, RopeConfig(10000.0, PerFrequencyScaling(factors, 1.5)))(position))

    torch.testing.assert_close(scaled, plain * 1.5)


def test_scores_depend_on_relative_positions_only() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 16)
    rotary = RotaryEmbedding(16, RopeConfig(10000.0))

    def score(at: int, of: int) -> float:
        turned = rotate(query, rotary(torch.tensor([at]))), rotate(key, rotary(torch.tensor([of])))
        return float((turned[0] * turned[1]).sum())

    assert math.isclose(score(3, 1), score(103, 101), rel_tol=1e-4)
    assert not math.isclose(score(3, 1), score(3, 2), rel_tol=1e-2)


def test_angles_are_float32_for_bfloat16_inputs() -> None:
    x = torch.randn(1, 2, 8).bfloat16()
    rotation = RotaryEmbedding(8, RopeConfig(10000.0))(torch.tensor([5000]))

    rotated = rotate(x, rotation)

    assert rotation.cos.dtype == torch.float32
    assert torch.equal(rotated, rotate(x.float(), rotation).bfloat16())
