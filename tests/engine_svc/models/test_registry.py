from __future__ import annotations

from typing import Any

import pytest

from engine_svc.layers.norm import NormConfig
from engine_svc.layers.rotary import LinearScaling, Llama3Scaling, PerFrequencyScaling, RopeConfig
from engine_svc.models.config import DecoderConfig, LayerConfig, RawConfig
from engine_svc.models.registry import find_family, reason_against_native
from engine_svc.weights.errors import ModelLoadError

MINIMAL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
}


def read(**changes: Any) -> DecoderConfig:
    values = MINIMAL | changes
    return find_family(values).read_config(RawConfig(values))


def test_defaults_of_llama() -> None:
    assert read() == DecoderConfig(
        vocab_size=32,
        hidden_size=48,
        intermediate_size=96,
        num_heads=6,
        num_kv_heads=6,
        head_dim=8,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        layers=(LayerConfig(RopeConfig(10000.0)),) * 2,
        norm=NormConfig(1e-6),
    )


@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rope_type": "default"}, None),
        ({}, None),
        ({"rope_type": "linear", "factor": 2}, LinearScaling(2.0)),
        ({"type": "linear", "factor": 2.0}, LinearScaling(2.0)),
        ({"rope_type": "factors", "factors": [1.0, 4.0, 4.0, 8.0]}, PerFrequencyScaling((1.0, 4.0, 4.0, 8.0))),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            Llama3Scaling(8.0, 1.0, 4.0, 8192),
        ),
    ],
)
def test_rope_scaling_in_both_spellings(name: str, given: dict[str, Any], expected: object) -> None:
    rope = read(rope_theta=500.0, **{name: given}).layers[0].rope

    assert rope == RopeConfig(500.0, expected)  # type: ignore[arg-type]


def test_rope_theta_inside_rope_parameters_has_precedence() -> None:
    assert read(rope_theta=1.0, rope_parameters={"rope_type": "default", "rope_theta": 9.0}).layers[0].rope.theta == 9.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"architectures": ["FalconForCausalLM"]},
            "FalconForCausalLM is not supported; supported: LlamaForCausalLM, Mis",
        ),
        ({"architectures": []}, "none given"),
        ({"architectures": None}, "none given"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "'yarn' is not supported; supported: default, linear",
        ),
        ({"rope_scaling": {"rope_type": "linear"}}, r"rope_scaling lacks factor"),
        ({"num_key_value_heads": 4}, "num_attention_heads 6 must be a multiple of num_key_value_heads 4"),
        ({"head_dim": 5}, "rotary dimension must be even, got 5"),
        ({"vocab_size": None}, "lacks vocab_size"),
    ],
)
def test_unsupported_fields_are_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        read(**changes)


def test_the_first_known_architecture_is_used() -> None:
    assert find_family({"architectures": ["Odd", "MistralForCausalLM"]}).model_type == "mistral"


def test_mistral_without_a_window_equals_llama() -> None:
    assert read(architectures=["MistralForCausalLM"], sliding_window=None) == read()


def test_reason_against_native_reads_the_whole_configuration() -> None:
    assert reason_against_native(MINIMAL) is None
    assert reason_against_native(MINIMAL | {"architectures": ["FalconForCausalLM"]}) is not None
    assert reason_against_native(MINIMAL | {"hidden_act": "gelu"}) == (
        "config: hidden_act 'gelu' is not supported, only 'silu'"
    )
