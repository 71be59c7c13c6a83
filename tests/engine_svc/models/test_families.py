"""What each family reads from config.json, refuses, and takes as default."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from transformers import PretrainedConfig

from engine_svc.layers.norm import NormConfig
from engine_svc.layers.rotary import LinearScaling, PerFrequencyScaling, RopeConfig
from engine_svc.models.config import NORMS_AFTER, NORMS_AROUND, DecoderConfig, LayerConfig, QKNorm, RawConfig
from engine_svc.models.registry import FAMILIES, find_family
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import tiny

MINIMAL: dict[str, Any] = {
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
    values = MINIMAL | changes | {"architectures": [architecture]}
    return find_family(values).read_config(RawConfig(values))


def windows(config: DecoderConfig) -> list[int | None]:
    return [layer.window for layer in config.layers]


def test_defaults_of_each_family() -> None:
    assert read("LlamaForCausalLM") == read("MistralForCausalLM") == PLAIN
    assert read("Qwen2ForCausalLM") == dataclasses.replace(PLAIN, max_position_embeddings=32768, qkv_bias=True)
    assert read("Qwen3ForCausalLM") == dataclasses.replace(
        PLAIN, max_position_embeddings=32768, head_dim=128, qk_norm=QKNorm.PER_HEAD
    )
    assert read("Phi3ForCausalLM") == dataclasses.replace(
        PLAIN, max_position_embeddings=4096, norm=NormConfig(1e-5), packed=True
    )
    assert read("Olmo2ForCausalLM") == dataclasses.replace(
        PLAIN, norm=NormConfig(1e-5, 0.0), norm_placement=NORMS_AFTER, qk_norm=QKNorm.ALL_HEADS
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
        gemma, max_position_embeddings=131072, layers=(LayerConfig(LOCAL, 4096),) * 3, qk_norm=QKNorm.PER_HEAD
    )


@pytest.mark.parametrize(
    "make", [tiny.llama, tiny.mistral, tiny.qwen2, tiny.qwen3, tiny.gemma2, tiny.gemma3, tiny.phi3, tiny.olmo2]
)
def test_a_config_written_by_transformers(make: Callable[..., PretrainedConfig]) -> None:
    theirs = make(tie_word_embeddings=True, head_dim=10)
    (architecture,) = (name for name, family in FAMILIES.items() if family.model_type == theirs.model_type)

    ours = read(architecture, **theirs.to_dict())

    assert (ours.head_dim, ours.num_heads, ours.num_kv_heads, len(ours.layers)) == (10, 4, 2, theirs.num_hidden_layers)
    assert ours.tie_word_embeddings
    assert ours.norm.eps == theirs.rms_norm_eps


def test_null_num_key_value_heads_equals_num_attention_heads() -> None:
    assert read("Qwen2ForCausalLM", num_key_value_heads=None).num_kv_heads == 4


def test_use_sliding_window_switches_the_window() -> None:
    given = {"sliding_window": 8, "max_window_layers": 1}

    assert windows(read("Qwen2ForCausalLM", **given)) == [None] * 3
    assert windows(read("Qwen3ForCausalLM", **given, use_sliding_window=True)) == [None, 8, 8]
    assert windows(read("Qwen3ForCausalLM", use_sliding_window=True, sliding_window=8, max_window_layers=0)) == [8] * 3


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"])
def test_layer_types_override_the_default_order(architecture: str) -> None:
    kinds = ["full_attention", "sliding_attention", "full_attention"]

    config = read(architecture, layer_types=kinds, sliding_window=8, use_sliding_window=True)

    assert windows(config) == [None, 8, None]


def test_gemma_3_has_different_rope_in_full_and_sliding_layers() -> None:
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
def test_gemma_3_scales_rope_of_full_layers_only(given: dict[str, Any]) -> None:
    config = read("Gemma3ForCausalLM", sliding_window_pattern=3, sliding_window=8, **given)

    assert [layer.rope for layer in config.layers] == [
        RopeConfig(100.0),
        RopeConfig(100.0),
        RopeConfig(500.0, LinearScaling(8.0)),
    ]


def test_gemma_3_rope_parameters_without_a_layer_type() -> None:
    config = read("Gemma3ForCausalLM", sliding_window_pattern=3, rope_parameters={"full_attention": None})

    assert [layer.rope for layer in config.layers] == [LOCAL, LOCAL, GLOBAL]


LONG = {"short_factor": [1.0, 2.0, 2.0, 2.0, 3.0, 4.0], "long_factor": [8.0] * 6}


@pytest.mark.parametrize("kind", [{"type": "su"}, {"type": "yarn"}, {"rope_type": "longrope"}])
def test_phi_3_longrope_is_limited_to_the_original_context(kind: dict[str, Any]) -> None:
    config = read(
        "Phi3ForCausalLM",
        max_position_embeddings=65536,
        original_max_position_embeddings=4096,
        rope_scaling=LONG | kind,
    )

    # 1 + log 16 / log 4096 = 4 / 3
    expected = PerFrequencyScaling(tuple(LONG["short_factor"]), pytest.approx((4 / 3) ** 0.5))  # type: ignore[arg-type]
    assert config.max_position_embeddings == 4096
    assert config.layers[0].rope == RopeConfig(10000.0, expected)


@pytest.mark.parametrize(
    ("changes", "attention_factor"), [({"attention_factor": 1.5}, 1.5), ({"factor": 0.5}, 1.0), ({"factor": 1.0}, 1.0)]
)
def test_phi_3_attention_factor(changes: dict[str, Any], attention_factor: float) -> None:
    config = read("Phi3ForCausalLM", rope_scaling=LONG | {"rope_type": "longrope"} | changes)

    assert config.layers[0].rope.scaling == PerFrequencyScaling(tuple(LONG["short_factor"]), attention_factor)


@pytest.mark.parametrize("where", ["beside", "inside"])
def test_phi_3_partial_rotary_factor(where: str) -> None:
    part = {"partial_rotary_factor": 0.5}
    given = part if where == "beside" else {"rope_parameters": {"rope_type": "default"} | part}

    assert read("Phi3ForCausalLM", **given).layers[0].rope == RopeConfig(10000.0, None, 0.5)


@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("Qwen2ForCausalLM", {"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported, only 'silu'"),
        ("Qwen2ForCausalLM", {"layer_types": ["full_attention"]}, "layer_types must have 3 entries, got 1"),
        ("Qwen3ForCausalLM", {"layer_types": ["chunked_attention"] * 3}, "layer_types chunked_attention is not supp"),
        ("Qwen3ForCausalLM", {"layer_types": "full"}, "layer_types must be an array"),
        ("Qwen3ForCausalLM", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ("Qwen3ForCausalLM", {"max_window_layers": -1}, "max_window_layers must be at least 0"),
        ("Gemma2ForCausalLM", {"hidden_activation": "gelu"}, "hidden_activation 'gelu' is not supported, only 'gelu_"),
        ("Gemma2ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Gemma2ForCausalLM", {"sliding_window": 0}, "sliding_window must be at least 1"),
        ("Gemma3ForCausalLM", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0 is not supported"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Gemma3ForConditionalGeneration", {}, "Gemma3ForConditionalGeneration is not supported; supported: Llama"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not supported for Phi"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope"}}, "rope_scaling lacks short_factor"),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
            "expected 6 rope factors, one per frequency, got 1",
        ),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.25}, "rotary dimension must be even, got 3"),
        ("Olmo2ForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        (
            "Olmo2ForCausalLM",
            {"num_key_value_heads": 3},
            "num_attention_heads 4 must be a multiple of num_key_value_heads 3",
        ),
    ],
)
def test_unsupported_fields_are_refused_by_name(architecture: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        read(architecture, **changes)
