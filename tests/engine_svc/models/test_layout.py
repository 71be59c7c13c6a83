"""The layout has the same names and shapes of weights as the modules of the reference decoder."""

from __future__ import annotations

import pytest
import torch
from transformers import PretrainedConfig

from engine_svc.models.layout import decoder_layout
from engine_svc.weights.loading import destinations_of
from tests.engine_svc import tiny
from tests.engine_svc.models.test_decoder import decoder_of


@pytest.mark.parametrize(
    "theirs",
    [
        tiny.llama(),
        tiny.llama(tie_word_embeddings=True, num_key_value_heads=1, head_dim=10),
        tiny.llama(attention_bias=True, mlp_bias=True),
        tiny.mistral(),
        tiny.qwen2(),
        tiny.qwen3(attention_bias=True),
        tiny.gemma2(),
        tiny.gemma3(),
        tiny.phi3(),
        tiny.olmo2(),
    ],
    ids=lambda config: config.model_type,
)
def test_names_and_shapes_equal_the_reference(theirs: PretrainedConfig) -> None:
    with torch.device("meta"):
        reference = decoder_of(theirs)
    expected = {name: tuple(weights.shape) for name, weights in destinations_of(reference).items()}

    layout = decoder_layout(reference.config)

    assert layout.shapes == expected
    named = {name for layer in layout.layers for name, _ in layer.qkv.shapes()}
    assert named <= layout.shapes.keys()
    assert len(layout.layers) == theirs.num_hidden_layers
