from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PretrainedConfig

from engine_svc.models.config import RawConfig
from engine_svc.models.decoder import Decoder
from engine_svc.models.registry import FAMILIES
from tests.engine_svc import tiny


def decoder_of(theirs: PretrainedConfig, dtype: torch.dtype = torch.float32) -> Decoder:
    (family,) = (family for family in FAMILIES.values() if family.model_type == theirs.model_type)
    return Decoder(family.read_config(RawConfig(theirs.to_dict())), dtype)


def decoder(dtype: torch.dtype = torch.float32, **changes: Any) -> Decoder:
    return decoder_of(tiny.llama(**changes), dtype)


@pytest.mark.parametrize(
    "theirs",
    [
        tiny.llama(),
        tiny.llama(tie_word_embeddings=True),
        tiny.llama(attention_bias=True, mlp_bias=True),
        tiny.qwen2(),
        tiny.qwen3(),
        tiny.gemma2(),
        tiny.gemma3(),
        tiny.phi3(),
        tiny.olmo2(),
    ],
    ids=lambda config: config.model_type,
)
def test_parameter_count_equals_transformers(theirs: PretrainedConfig) -> None:
    model = tiny.random_model(theirs)

    ours = sum(parameter.numel() for parameter in decoder_of(theirs).parameters())

    assert ours == sum(parameter.numel() for parameter in model.parameters())


def test_tied_embeddings_have_no_lm_head_and_ignore_a_stored_one() -> None:
    tied, untied = decoder(tie_word_embeddings=True), decoder()

    assert tied.lm_head is None
    assert "lm_head.weight" in tied.unused_weights
    assert "lm_head.weight" not in untied.unused_weights


def test_kv_cache_has_the_dtype_of_the_weights() -> None:
    config = decoder(torch.bfloat16).attention_config

    assert (config.dtype, config.num_layers, config.num_heads, config.num_kv_heads) == (torch.bfloat16, 2, 4, 2)
    assert config.kv_bytes_per_token == 2 * 2 * 2 * 6 * 2


def test_attention_config_has_windows_scale_and_softcap() -> None:
    plain, gemma = decoder().attention_config, decoder_of(tiny.gemma2()).attention_config

    assert (plain.windows, plain.scale, plain.softcap) == ((None, None), None, None)
    assert (gemma.windows, gemma.scale, gemma.softcap) == ((16, None), 5**-0.5, 3.0)


def test_rotations_are_computed_once_per_rope_config() -> None:
    model = decoder_of(tiny.gemma3()).model

    assert (len(decoder().model.rotary), len(model.rotary)) == (1, 2)
    assert model.rotary_of_layer == [0, 0, 1, 0]


def test_embedding_scale_is_rounded_to_the_dtype() -> None:
    exact, rounded = decoder_of(tiny.gemma2()).model, decoder_of(tiny.gemma2(), torch.bfloat16).model

    assert exact.embedding_scale == pytest.approx(24**0.5, abs=1e-6)
    assert rounded.embedding_scale == 4.90625
