from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_svc.layers.activation import silu
from engine_svc.layers.fixed_tile import FixedTileProduct
from engine_svc.layers.linear import Embedding, Linear
from engine_svc.models.batch_invariant import make_batch_invariant
from engine_svc.models.decoder import GatedMLP
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import tiny
from tests.engine_svc.models.test_decoder import decoder
from tests.engine_svc.running import greedy, load, outputs, run


@pytest.mark.parametrize("tied", [False, True])
def test_all_products_and_activations_are_replaced(tied: bool) -> None:
    model = decoder(tie_word_embeddings=tied, vocab_size=101)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    embedding = model.model.embed_tokens.weight.clone()

    make_batch_invariant(model)

    layers = [module for module in model.modules() if isinstance(module, Linear | Embedding)]
    assert len(layers) == 2 * 4 + (1 if tied else 2)
    assert all(isinstance(layer.product, FixedTileProduct) for layer in layers)
    assert all(module.activation is silu for module in model.modules() if isinstance(module, GatedMLP))
    assert torch.equal(model.model.embed_tokens(torch.arange(101)), embedding)


@pytest.mark.parametrize("config", [tiny.llama(), tiny.gemma2(), tiny.qwen3()], ids=lambda config: config.model_type)
def test_outputs_do_not_change(config: Any, tmp_path: Path) -> None:
    folder = tiny.save(tiny.random_model(config), tmp_path)
    requests = [greedy([5, 9, 11], 12), greedy(range(20, 50), 12)]

    plain, invariant = (
        outputs(run(load(folder, deterministic=deterministic, attention_backend="reference"), requests))
        for deterministic in (False, True)
    )

    assert plain == invariant


def test_a_library_that_is_not_batch_invariant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails for the LM head only, which is checked last."""

    def library(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return x @ weight.T + (x.sum() if len(weight) == 112 else 0.0)

    model = decoder()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    monkeypatch.setattr("engine_svc.layers.fixed_tile.F.linear", library)

    with pytest.raises(
        ModelLoadError, match="deterministic mode is not supported on this machine: products with 97 x 24 matrices"
    ):
        make_batch_invariant(model)


def test_batch_invariance_is_reported_in_the_info(tmp_path: Path) -> None:
    folder = tiny.save(tiny.random_model(tiny.llama()), tmp_path)

    assert load(folder, attention_backend="reference", deterministic=True).info.batch_invariant
    assert not load(folder, attention_backend="reference").info.batch_invariant
