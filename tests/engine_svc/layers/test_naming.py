from __future__ import annotations

from engine_svc.layers.naming import beside


def test_a_name_beside_a_path() -> None:
    assert beside("model.layers.0.mlp.down", "down_proj") == "model.layers.0.mlp.down_proj"
    assert beside("top", "weight") == "weight"
