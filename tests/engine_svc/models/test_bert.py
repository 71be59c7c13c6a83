from __future__ import annotations

from typing import Any

import pytest
import torch

from engine_svc.models.bert import read_bert, read_roberta
from engine_svc.models.config import RawConfig
from engine_svc.models.encoder import Encoder, EncoderConfig
from engine_svc.models.encoders import find_encoder
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import tiny_encoders

MINIMAL: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
}


def test_defaults() -> None:
    bert = EncoderConfig(32, 48, 96, num_heads=6, num_layers=2, num_positions=512, first_position=0,
                         num_token_types=2, norm_eps=1e-12)  # fmt: skip

    assert read_bert(RawConfig(MINIMAL)) == bert
    assert bert.max_position_embeddings == 512


@pytest.mark.parametrize(("padding", "longest"), [({}, 510), ({"pad_token_id": 0}, 511), ({"pad_token_id": 4}, 507)])
def test_roberta_positions_start_after_the_padding_id(padding: dict[str, int], longest: int) -> None:
    assert read_roberta(RawConfig(MINIMAL | padding)).max_position_embeddings == longest


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"num_attention_heads": 7}, "hidden_size 48 must be a multiple of num_attention_heads 7"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"max_position_embeddings": 0}, "max_position_embeddings must be at least 1"),
    ],
)
def test_unsupported_fields_are_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        read_bert(RawConfig(MINIMAL | changes))


def test_a_padding_id_that_leaves_no_positions_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"must be greater than the first position 5 .*, got 5"):
        read_roberta(RawConfig(MINIMAL | {"max_position_embeddings": 5, "pad_token_id": 4}))


@pytest.mark.parametrize("config", [tiny_encoders.bert(), tiny_encoders.roberta()], ids=lambda c: c.model_type)
def test_parameter_count_equals_transformers_without_the_pooler(config: Any) -> None:
    model = tiny_encoders.random_encoder(config)
    family = find_encoder({"architectures": [type(model).__name__]})
    assert family is not None

    encoder = Encoder(family.read_config(RawConfig(config.to_dict())), torch.float32)

    pooler = sum(parameter.numel() for parameter in model.pooler.parameters())
    assert sum(parameter.numel() for parameter in encoder.parameters()) == model.num_parameters() - pooler


def test_an_unknown_encoder_is_none() -> None:
    assert find_encoder({"architectures": ["MPNetModel"]}) is None
    assert find_encoder({}) is None


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ("roberta.encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("lm_head.dense.weight", None),
        ("cls.predictions.bias", None),
    ],
)
def test_weight_names_with_and_without_a_head(stored: str, name: str | None) -> None:
    family = find_encoder({"architectures": ["XLMRobertaModel"]})
    assert family is not None

    assert family.weight_name(stored) == name
