"""What each family's file reads, refuses, and takes for granted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from transformers import PretrainedConfig

from engine_svc.layers.norm import NormConfig
from engine_svc.layers.rotary import GivenFactors, LinearScaling, RopeConfig
from engine_svc.models.config import NORMS_AFTER, NORMS_AROUND, DecoderConfig, HeadNorms, LayerConfig, RawConfig
from engine_svc.models.registry import FAMILIES, find_family
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import tiny

LEAST: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
PLAIN = DecoderConfig(
    vocab_size=32,
    hidden_size=48,
    intermediate_size=96,
    num_heads=4,
    num_kv_heads=2,
    head_dim=12,
    max_position_embeddings=2048,
    tie_word_embeddings=False,
    layers=(LayerConfig(RopeConfig(10000.0)),) * 3,
    norm=NormConfig(1e-6),
)
LOCAL, GLOBAL = RopeConfig(10000.0), RopeConfig(1_000_000.0)


def read(architecture: str, **changes: Any) -> DecoderConfig:
    values = LEAST | changes | {"architectures": [architecture]}
    return find_family(values).read_config(RawConfig(values))


def windows(config: DecoderConfig) -> list[int | None]:
    return [layer.window for layer in config.layers]


def test_what_the_families_are_when_their_configuration_says_little() -> None:
    assert read("LlamaForCausalLM") == read("MistralForCausalLM") == PLAIN
    assert read("Qwen2ForCausalLM") == dataclasses.replace(PLAIN, max_position_embeddings=32768, qkv_bias=True)
    assert read("Qwen3ForCausalLM") == dataclasses.replace(
        PLAIN, max_position_embeddings=32768, head_dim=128, head_norms=HeadNorms.EACH
    )
    assert read("Phi3ForCausalLM") == dataclasses.replace(
        PLAIN, max_position_embeddings=4096, norm=NormConfig(1e-5), packed=True
    )
    assert read("Olmo2ForCausalLM") == dataclasses.replace(
        PLAIN, norm=NormConfig(1e-5, 0.0), norm_placement=NORMS_AFTER, head_norms=HeadNorms.TOGETHER
    )
    gemma = dataclasses.replace(
        PLAIN,
        head_dim=256,
        tie_word_embeddings=True,
        norm=NormConfig(1e-6, 1.0),
        norm_placement=NORMS_AROUND,
        activation="gelu_pytorch_tanh",
        attention_scale=1 / 16,
        embedding_scale=48**0.5,
    )
    assert read("Gemma2ForCausalLM") == dataclasses.replace(
        gemma,
        max_position_embeddings=8192,
        layers=(LayerConfig(LOCAL, 4096), LayerConfig(LOCAL), LayerConfig(LOCAL, 4096)),
        attention_softcap=50.0,
        logit_softcap=30.0,
    )
    assert read("Gemma3ForCausalLM") == dataclasses.replace(
        gemma, max_position_embeddings=131072, layers=(LayerConfig(LOCAL, 4096),) * 3, head_norms=HeadNorms.EACH
    )


@pytest.mark.parametrize(
    "make", [tiny.llama, tiny.mistral, tiny.qwen2, tiny.qwen3, tiny.gemma2, tiny.gemma3, tiny.phi3, tiny.olmo2]
)
def test_a_config_that_transformers_writes(make: Callable[..., PretrainedConfig]) -> None:
    theirs = make(tie_word_embeddings=True, head_dim=10)
    (architecture,) = (name for name, family in FAMILIES.items() if family.model_type == theirs.model_type)

    ours = read(architecture, **theirs.to_dict())

    assert (ours.head_dim, ours.num_heads, ours.num_kv_heads, len(ours.layers)) == (10, 4, 2, theirs.num_hidden_layers)
    assert ours.tie_word_embeddings
    assert ours.norm.eps == theirs.rms_norm_eps


def test_null_key_heads_are_as_many_as_heads() -> None:
    assert read("Qwen2ForCausalLM", num_key_value_heads=None).num_kv_heads == 4


def test_a_window_that_is_switched_off_is_none() -> None:
    given = {"sliding_window": 8, "max_window_layers": 1}

    assert windows(read("Qwen2ForCausalLM", **given)) == [None] * 3
    assert windows(read("Qwen3ForCausalLM", **given, use_sliding_window=True)) == [None, 8, 8]
    assert windows(read("Qwen3ForCausalLM", use_sliding_window=True, sliding_window=8, max_window_layers=0)) == [8] * 3


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"])
def test_layer_types_go_before_the_usual_order(architecture: str) -> None:
    kinds = ["full_attention", "sliding_attention", "full_attention"]

    config = read(architecture, layer_types=kinds, sliding_window=8, use_sliding_window=True)

    assert windows(config) == [None, 8, None]


def test_gemma_3_has_other_positions_without_a_window() -> None:
    config = read("Gemma3ForCausalLM", sliding_window_pattern=2, sliding_window=8)

    assert config.layers == (LayerConfig(LOCAL, 8), LayerConfig(GLOBAL), LayerConfig(LOCAL, 8))


@pytest.mark.parametrize(
    "given",
    [
        {
            "rope_theta": 500.0,
            "rope_local_base_freq": 100.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            }
        },
    ],
    ids=["before transformers 5", "transformers 5"],
)
def test_gemma_3_stretches_global_positions_only(given: dict[str, Any]) -> None:
    config = read("Gemma3ForCausalLM", sliding_window_pattern=3, sliding_window=8, **given)

    assert [layer.rope for layer in config.layers] == [
        RopeConfig(100.0),
        RopeConfig(100.0),
        RopeConfig(500.0, LinearScaling(8.0)),
    ]


def test_gemma_3_in_rope_parameters_that_leave_out_a_kind() -> None:
    config = read("Gemma3ForCausalLM", sliding_window_pattern=3, rope_parameters={"full_attention": None})

    assert [layer.rope for layer in config.layers] == [LOCAL, LOCAL, GLOBAL]


LONG = {"short_factor": [1.0, 2.0, 2.0, 2.0, 3.0, 4.0], "long_factor": [8.0] * 6}


@pytest.mark.parametrize("kind", [{"type": "su"}, {"type": "yarn"}, {"rope_type": "longrope"}])
def test_phi_3_for_long_contexts_is_served_up_to_where_the_factors_change(kind: dict[str, Any]) -> None:
    config = read(
        "Phi3ForCausalLM",
        max_position_embeddings=65536,
        original_max_position_embeddings=4096,
        rope_scaling=LONG | kind,
    )

    # 1 + log 16 / log 4096 = 4 / 3
    expected = GivenFactors(tuple(LONG["short_factor"]), pytest.approx((4 / 3) ** 0.5))  # type: ignore[arg-type]
    assert config.max_position_embeddings == 4096
    assert config.layers[0].rope == RopeConfig(10000.0, expected)


@pytest.mark.parametrize(
    ("changes", "magnitude"), [({"attention_factor": 1.5}, 1.5), ({"factor": 0.5}, 1.0), ({"factor": 1.0}, 1.0)]
)
def test_phi_3_magnitude(changes: dict[str, Any], magnitude: float) -> None:
    config = read("Phi3ForCausalLM", rope_scaling=LONG | {"rope_type": "longrope"} | changes)

    assert config.layers[0].rope.scaling == GivenFactors(tuple(LONG["short_factor"]), magnitude)


@pytest.mark.parametrize("where", ["beside", "inside"])
def test_phi_3_may_rotate_heads_in_part(where: str) -> None:
    part = {"partial_rotary_factor": 0.5}
    given = part if where == "beside" else {"rope_parameters": {"rope_type": "default"} | part}

    assert read("Phi3ForCausalLM", **given).layers[0].rope == RopeConfig(10000.0, None, 0.5)


@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("Qwen2ForCausalLM", {"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported, only 'silu'"),
        ("Qwen2ForCausalLM", {"layer_types": ["full_attention"]}, "layer_types names 1 layers, but there are 3"),
        ("Qwen3ForCausalLM", {"layer_types": ["chunked_attention"] * 3}, "layer_types chunked_attention is not supp"),
        ("Qwen3ForCausalLM", {"layer_types": "full"}, "layer_types has a value of the wrong type"),
        ("Qwen3ForCausalLM", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ("Qwen3ForCausalLM", {"max_window_layers": -1}, "max_window_layers must be 0 or above"),
        ("Gemma2ForCausalLM", {"hidden_activation": "gelu"}, "hidden_activation 'gelu' is not supported, only 'gelu_"),
        ("Gemma2ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Gemma2ForCausalLM", {"sliding_window": 0}, "sliding_window must be 1 or above"),
        ("Gemma3ForCausalLM", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0 is not supported"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Gemma3ForConditionalGeneration", {}, "Gemma3ForConditionalGeneration is not supported; supported are Llama"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not supported with Phi"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope"}}, "rope_scaling lacks short_factor"),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
            "there are 1 rope factors for 6 frequencies",
        ),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.25}, "head size of 3 cannot be rotated"),
        ("Olmo2ForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("Olmo2ForCausalLM", {"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(architecture: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        read(architecture, **changes)
