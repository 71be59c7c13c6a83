from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType

from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.gguf_config import ROPE_FACTORS, RopeFactors, read_config
from engine_svc.weights.gguf_header import GgufHeader, TensorInfo

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
    """The configuration of a file with these tensors beside the embedding, and changed metadata."""
    metadata = METADATA | {key.replace("__", "."): value for key, value in changes.items()}
    metadata.pop(without, None)
    infos = [TensorInfo(name, (32, 48), GGMLQuantizationType.F32, 0) for name in ("token_embd.weight", *tensors)]
    return read_config(Path("some.gguf"), GgufHeader(metadata, tuple(infos)), {ROPE_FACTORS: factors}.get)


def test_sizes_have_hugging_faces_names() -> None:
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


def test_what_tensors_there_are_decides_on_tying_and_biases() -> None:
    tied = config("blk.0.attn_q.bias", "blk.0.ffn_up.bias")

    assert (tied["tie_word_embeddings"], tied["attention_bias"], tied["mlp_bias"]) == (True, True, True)


def test_a_head_size_of_its_own() -> None:
    assert config(llama__attention__key_length=16, llama__rope__dimension_count=16)["head_dim"] == 16


def test_as_many_key_heads_as_heads_unless_told() -> None:
    assert config(without="llama.attention.head_count_kv")["num_key_value_heads"] == 6


def test_heads_that_are_rotated_in_part_are_told_apart() -> None:
    assert config(llama__rope__dimension_count=4)["partial_rotary_factor"] == 0.5


def test_a_window_makes_it_mistral() -> None:
    windowed = config(llama__attention__sliding_window=64)

    assert (windowed["architectures"], windowed["sliding_window"]) == (["MistralForCausalLM"], 64)


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
def test_stretched_positions(changes: dict[str, Any], factors: RopeFactors, scaling: dict[str, Any] | None) -> None:
    assert config(factors=factors, **changes)["rope_scaling"] == scaling


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"general__architecture": "mamba"}, "'mamba' is not supported; supported are llama"),
        ({"without": "general.architecture"}, "None is not supported"),
        ({"without": "llama.block_count"}, "lacks the metadata block_count"),
        ({"llama__attention__head_count": 0}, "attention.head_count must be one whole number above 0"),
        ({"llama__attention__head_count_kv": [2, 1]}, "attention.head_count_kv must be one whole number"),
        ({"llama__embedding_length": "48"}, "embedding_length must be one whole number"),
        ({"llama__expert_count": 8}, "expert_count"),
        ({"llama__attention__scale": 0.5}, "attention.scale"),
        ({"split__count": 3}, "one of several parts"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        config(**changes)


def test_no_experts_is_no_reason_to_refuse() -> None:
    assert config(llama__expert_count=0)["hidden_size"] == 48


def test_a_file_without_embedding_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"token_embd\.weight"):
        read_config(Path("some.gguf"), GgufHeader(METADATA, ()), lambda name: None)
