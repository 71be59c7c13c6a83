from __future__ import annotations

from typing import Any

import pytest
import torch

from engine_svc.models.config import RawConfig
from engine_svc.models.decoder import Decoder
from engine_svc.models.registry import find_family
from tests.engine_svc import tiny


def decoder(dtype: torch.dtype = torch.float32, **changes: Any) -> Decoder:
    values = tiny.llama(**changes).to_dict() | {"architectures": ["LlamaForCausalLM"]}
    return Decoder(find_family(values).read_config(RawConfig(values)), dtype)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True}])
def test_it_has_as_many_parameters_as_transformers(changes: dict[str, Any]) -> None:
    theirs = tiny.random_model(tiny.llama(**changes))

    ours = sum(parameter.numel() for parameter in decoder(**changes).parameters())

    assert ours == sum(parameter.numel() for parameter in theirs.parameters())


def test_tied_embeddings_are_kept_once_and_their_copy_is_passed_over() -> None:
    tied, untied = decoder(tie_word_embeddings=True), decoder()

    assert tied.lm_head is None
    assert "lm_head.weight" in tied.unused_weights
    assert "lm_head.weight" not in untied.unused_weights


def test_the_cache_has_the_type_of_the_weights() -> None:
    config = decoder(torch.bfloat16).attention_config

    assert (config.dtype, config.num_layers, config.num_heads, config.num_kv_heads) == (torch.bfloat16, 2, 4, 2)
    assert config.kv_bytes_per_token == 2 * 2 * 2 * 6 * 2
