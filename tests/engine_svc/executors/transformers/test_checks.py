from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PretrainedConfig

from engine_svc.executors.transformers.checks import find_class, longest_sequence, read_config
from engine_svc.models.config import RawConfig
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import foreign


def read(folder: Path, **values: Any) -> PretrainedConfig:
    (folder / "config.json").write_text(json.dumps(values))
    return read_config(folder, RawConfig(values))


def bare(**values: Any) -> PretrainedConfig:
    """A configuration of an unknown family."""
    config = PretrainedConfig()
    for name, value in values.items():
        setattr(config, name, value)
    return config


def test_the_class_is_the_one_named_in_architectures(tmp_path: Path) -> None:
    config = read(tmp_path, model_type="gpt_neox", architectures=["Odd", "GPTNeoXForCausalLM"])

    assert find_class(config).__name__ == "GPTNeoXForCausalLM"


@pytest.mark.parametrize(
    ("model_type", "architecture", "reason"),
    [
        ("bloom", "BloomForCausalLM", "its attention cannot be replaced .* ALiBi"),
        ("mpt", "MptForCausalLM", "its attention cannot be replaced .* ALiBi"),
        ("mamba", "MambaForCausalLM", "it has recurrent state"),
        ("rwkv", "RwkvForCausalLM", "it has recurrent state"),
        ("recurrent_gemma", "RecurrentGemmaForCausalLM", "it has recurrent state"),
        ("llama4_text", "Llama4ForCausalLM", "unsupported layer types: chunked_attention"),
        ("lfm3", "Lfm3ForCausalLM", "unsupported layer types: conv"),
        ("fuyu", "FuyuForCausalLM", "it is multimodal"),
        ("mbart", "MBartForCausalLM", "it is an encoder-decoder model"),
        ("t5", "T5ForConditionalGeneration", "is not a causal language model of transformers for"),
        ("gpt_neox", "GPTNeoXForSequenceClassification", "is not a causal language model of transformers for"),
        ("bert", "BertForMaskedLM", "is not a causal language model of transformers for"),
        ("clip", "CLIPModel", "is not a causal language model of transformers for"),
        ("gpt_neox", None, r"architecture \(none\) is not a causal"),
    ],
)
def test_unsupported_models_are_refused_by_name(
    tmp_path: Path, model_type: str, architecture: str | None, reason: str
) -> None:
    config = read(tmp_path, model_type=model_type, architectures=architecture and [architecture])

    with pytest.raises(ModelLoadError, match=f"{architecture or ''}.*{reason}"):
        find_class(config)


def test_an_unknown_family_is_refused_and_its_code_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w')")
    given = {"auto_map": {"AutoConfig": "modeling_own.OwnConfig"}, "architectures": ["OwnForCausalLM"]}

    with pytest.raises(ModelLoadError, match="model_type own is unknown to transformers 5"):
        read(tmp_path, model_type="own", **given)
    with pytest.raises(ModelLoadError, match="model_type None is unknown"):
        read(tmp_path, **given)
    config = read(tmp_path, model_type="gpt_neox", **given)

    assert type(config).__name__ == "GPTNeoXConfig"
    assert not marker.exists()


def test_a_value_that_the_family_refuses(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"config.json is not what transformers expects: .*hidden_size"):
        read(tmp_path, model_type="gpt_neox", hidden_size="many")


def test_the_longest_sequence() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    bordered = rope | {"original_max_position_embeddings": 64}

    assert longest_sequence(foreign.gpt_neox()) == 128
    assert longest_sequence(foreign.gpt_neox(rope_parameters=bordered)) == 64
    assert longest_sequence(bare(max_position_embeddings=80, rope_parameters={"full": bordered})) == 64


@pytest.mark.parametrize("limit", [{}, {"max_position_embeddings": None}, {"max_position_embeddings": 0}])
def test_a_model_without_a_context_length(limit: dict[str, Any]) -> None:
    with pytest.raises(ModelLoadError, match="config has no max_position_embeddings"):
        longest_sequence(bare(**limit))
