from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType

from engine_svc.models.config import RawConfig
from engine_svc.models.registry import find_family
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.gguf_architectures import ARCHITECTURES
from engine_svc.weights.gguf_config import ROPE_FACTORS, SHORT_ROPE_FACTORS, RopeFactors, read_config
from modelfiles.gguf_header import GgufHeader, TensorInfo

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 512,
    "llama.embedding_length": 48,
    "llama.feed_forward_length": 96,
    "llama.block_count": 2,
    "llama.attention.head_count": 6,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 5000.0,
    "llama.rope.dimension_count": 8,
}


def config(*tensors: str, without: str = "", factors: RopeFactors = None, **changes: Any) -> dict[str, Any]:
    """The configuration of a file with the embedding, these tensors, and changed metadata."""
    metadata = METADATA | {key.replace("__", "."): value for key, value in changes.items()}
    metadata.pop(without, None)
    infos = [TensorInfo(name, (32, 48), GGMLQuantizationType.F32, 0) for name in ("token_embd.weight", *tensors)]
    return read_config(Path("some.gguf"), GgufHeader(metadata, tuple(infos)), {ROPE_FACTORS: factors}.get)


def test_metadata_is_converted_to_hugging_face_names() -> None:
    assert config("output.weight") == {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 32,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "query_pre_attn_scalar": 8,
        "partial_rotary_factor": 1.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }


def test_tying_and_biases_are_detected_by_tensors() -> None:
    tied = config("blk.0.attn_q.bias", "blk.0.ffn_up.bias")

    assert (tied["tie_word_embeddings"], tied["attention_bias"], tied["mlp_bias"]) == (True, True, True)


def test_key_length_is_the_head_dim() -> None:
    assert config(llama__attention__key_length=16, llama__rope__dimension_count=16)["head_dim"] == 16


def test_num_key_value_heads_defaults_to_num_attention_heads() -> None:
    assert config(without="llama.attention.head_count_kv")["num_key_value_heads"] == 6


def test_rope_dimension_count_gives_the_partial_rotary_factor() -> None:
    assert config(llama__rope__dimension_count=4)["partial_rotary_factor"] == 0.5


def test_llama_with_a_window_is_mistral() -> None:
    windowed = config(llama__attention__sliding_window=64)

    assert (windowed["architectures"], windowed["sliding_window"]) == (["MistralForCausalLM"], 64)


def other(arch: str, **changes: Any) -> dict[str, Any]:
    """The configuration of a file of another architecture."""
    metadata = {key.replace("llama.", f"{arch}."): value for key, value in METADATA.items()}
    metadata |= {"general.architecture": arch} | {
        f"{arch}.{key.replace('__', '.')}": value for key, value in changes.items()
    }
    infos = (TensorInfo("token_embd.weight", (32, 48), GGMLQuantizationType.F32, 0),)
    return read_config(Path("some.gguf"), GgufHeader(metadata, infos), lambda name: None)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_is_read_by_its_family(arch: str) -> None:
    found = other(arch)

    assert find_family(found).read_config(RawConfig(found)).hidden_size == 48


@pytest.mark.parametrize("arch", ["llama", "gemma2", "gemma3", "phi3"])
def test_an_absent_or_zero_window_is_null_instead_of_the_default(arch: str) -> None:
    assert other(arch)["sliding_window"] is None
    assert other(arch, attention__sliding_window=0)["sliding_window"] is None


def test_a_window_as_long_as_the_context_is_ignored() -> None:
    assert other("qwen2", attention__sliding_window=512)["sliding_window"] is None
    with pytest.raises(ModelLoadError, match=r"metadata attention\.sliding_window is not supported for this"):
        other("qwen2", attention__sliding_window=511)


def test_soft_caps_are_supported_for_gemma_only() -> None:
    assert other("gemma2", attn_logit_softcapping=20.0)["attn_logit_softcapping"] == 20.0
    with pytest.raises(ModelLoadError, match="attn_logit_softcapping"):
        other("gemma3", attn_logit_softcapping=20.0)
    with pytest.raises(ModelLoadError, match="final_logit_softcapping"):
        other("qwen3", final_logit_softcapping=20.0)


@pytest.mark.parametrize(("arch", "largest"), [("gemma2", 46), ("gemma3", 62)])
def test_the_largest_gemma_scales_scores_by_hidden_size_over_heads(arch: str, largest: int) -> None:
    sizes = {"embedding_length": 4608, "attention__head_count": 32, "attention__key_length": 128}

    assert other(arch, **sizes, block_count=largest)["query_pre_attn_scalar"] == 144
    assert other(arch, **sizes, block_count=26)["query_pre_attn_scalar"] == 128


def test_phi_3_longrope_factors() -> None:
    metadata = {key.replace("llama.", "phi3."): value for key, value in METADATA.items()}
    metadata |= {
        "general.architecture": "phi3",
        "phi3.rope.scaling.original_context_length": 128,
        "phi3.rope.scaling.attn_factor": 1.25,
    }
    infos = (TensorInfo("token_embd.weight", (32, 48), GGMLQuantizationType.F32, 0),)
    factors = {SHORT_ROPE_FACTORS: [1.0, 2.0]}

    found = read_config(Path("some.gguf"), GgufHeader(metadata, infos), factors.get)

    assert found["original_max_position_embeddings"] == 128
    assert found["rope_scaling"] == {"rope_type": "longrope", "short_factor": [1.0, 2.0], "attention_factor": 1.25}


@pytest.mark.parametrize(
    ("changes", "factors", "scaling"),
    [
        ({}, [1.0, 2.0], {"rope_type": "factors", "factors": [1.0, 2.0]}),
        ({"llama__rope__scale_linear": 4.0}, None, {"rope_type": "linear", "factor": 4.0}),
        (
            {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 2.0},
            None,
            {"rope_type": "linear", "factor": 2.0},
        ),
        ({"llama__rope__scaling__type": "none"}, None, None),
    ],
)
def test_rope_scaling(changes: dict[str, Any], factors: RopeFactors, scaling: dict[str, Any] | None) -> None:
    assert config(factors=factors, **changes)["rope_scaling"] == scaling


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"general__architecture": "mamba"},
            "'mamba' is not supported; supported: llama, qwen2, qwen3, gemma2, gem",
        ),
        ({"without": "general.architecture"}, "None is not supported"),
        ({"without": "llama.block_count"}, "lacks metadata: block_count"),
        ({"llama__attention__head_count": 0}, "metadata attention.head_count must be a positive integer"),
        ({"llama__attention__head_count_kv": [2, 1]}, "attention.head_count_kv must be a positive integer"),
        ({"llama__embedding_length": "48"}, "embedding_length must be a positive integer"),
        ({"llama__expert_count": 8}, "expert_count"),
        ({"llama__attention__scale": 0.5}, "attention.scale"),
        ({"split__count": 3}, "one part of a split file"),
    ],
)
def test_unsupported_metadata_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        config(**changes)


def test_zero_experts_are_accepted() -> None:
    assert config(llama__expert_count=0)["hidden_size"] == 48


def test_a_file_without_token_embedding_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"token_embd\.weight"):
        read_config(Path("some.gguf"), GgufHeader(METADATA, ()), lambda name: None)
