from __future__ import annotations

import pytest
import torch

from engine_svc.layers.layer_norm import LayerNorm


def layer() -> LayerNorm:
    norm = LayerNorm(3, 0.5, dtype=torch.float32, name="LayerNorm")
    norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
    norm.bias.copy_(torch.tensor([0.0, 10.0, 20.0]))
    return norm


def test_mean_and_variance_are_taken_out_before_weight_and_bias() -> None:
    x = torch.tensor([[1.0, 2.0, 6.0]])
    scale = (14 / 3 + 0.5) ** -0.5

    assert layer()(x)[0].tolist() == pytest.approx([-2 * scale, 10 - 2 * scale, 20 + 9 * scale])


def test_it_is_stored_beside_its_place() -> None:
    stored = dict(layer().stored_weights("encoder.layer.0.norm"))

    assert list(stored) == ["encoder.layer.0.LayerNorm.weight", "encoder.layer.0.LayerNorm.bias"]
    assert stored["encoder.layer.0.LayerNorm.bias"].tolist() == [0.0, 10.0, 20.0]
