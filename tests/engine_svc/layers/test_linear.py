from __future__ import annotations

import pytest
import torch

from engine_svc.layers.linear import Embedding, Linear, sibling


@pytest.mark.parametrize("bias", [False, True])
def test_merged_projections_equal_separate_layers(bias: bool) -> None:
    packed = Linear(6, {"q": 4, "k": 2, "v": 3}, bias=bias, dtype=torch.float64)
    alone = {name: torch.nn.Linear(6, rows, bias=bias, dtype=torch.float64) for name, rows in packed.parts.items()}
    with torch.no_grad():
        for name, view in packed.stored_weights("block.packed"):
            view.copy_(alone[name.split(".")[1]].get_parameter(name.rpartition(".")[2]))
    x = torch.randn(5, 6, dtype=torch.float64)

    expected = torch.cat([layer(x) for layer in alone.values()], dim=-1)

    assert torch.allclose(packed(x), expected, rtol=1e-12, atol=1e-12)


def test_parts_are_named_as_siblings_of_the_layer() -> None:
    packed = Linear(6, {"q": 4, "k": 2}, bias=True, dtype=torch.bfloat16)

    names = {name: tuple(view.shape) for name, view in packed.stored_weights("model.layers.0.attention.qkv")}

    assert names == {
        "model.layers.0.attention.q.weight": (4, 6),
        "model.layers.0.attention.k.weight": (2, 6),
        "model.layers.0.attention.q.bias": (4,),
        "model.layers.0.attention.k.bias": (2,),
    }


def test_a_top_level_layer_has_no_prefix() -> None:
    assert [name for name, _ in Linear(2, {"only": 2}, bias=False, dtype=torch.float32).stored_weights("linear")] == [
        "only.weight"
    ]


def test_weights_have_the_given_dtype_and_no_gradient() -> None:
    layer = Linear(6, {"q": 4}, bias=True, dtype=torch.bfloat16)

    assert all(parameter.dtype == torch.bfloat16 and not parameter.requires_grad for parameter in layer.parameters())
    assert layer(torch.ones(1, 6, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_tied_embedding_computes_logits() -> None:
    embedding = Embedding(7, 4, dtype=torch.float32)
    torch.nn.init.normal_(embedding.weight)

    vectors = embedding(torch.tensor([3, 0, 3]))

    assert torch.equal(vectors, embedding.weight[[3, 0, 3]])
    assert torch.allclose(embedding.logits(vectors), vectors @ embedding.weight.T)


def test_sibling_replaces_the_last_part_of_a_path() -> None:
    assert sibling("model.layers.0.mlp.down", "down_proj") == "model.layers.0.mlp.down_proj"
    assert sibling("top", "weight") == "weight"
