from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PretrainedConfig

from engine_svc.attention.interface import AttentionStep
from engine_svc.executors.transformers.attention import PAGED
from engine_svc.executors.transformers.model import TransformersModel
from engine_svc.executors.transformers.proof import check, own_logits, random_sequences
from engine_svc.executors.transformers.survey import SURVEY, survey_attention
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import foreign, tiny


def loaded(config: PretrainedConfig, dtype: torch.dtype) -> tuple[TransformersModel, list[Tensor], Tensor]:
    """A model before the check, its sequences and its own logits."""
    model = tiny.random_model(config).to(dtype)
    sequences = random_sequences(config.vocab_size)
    expected = own_logits(model, sequences)
    model.set_attn_implementation(SURVEY)
    attention = survey_attention(model, config, 128)
    model.set_attn_implementation(PAGED)
    return TransformersModel(model, attention), sequences, expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["gpt_neox", "vaultgemma", "starcoder2"])
@torch.inference_mode()
def test_equal_logits_pass(name: str, dtype: torch.dtype) -> None:
    check(*loaded(foreign.FAMILIES[name], dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("changes", [{"scale": 3.0}, {"windows": (2, 2)}, {"softcap": 0.5}, {"windows": (None, 3)}])
@torch.inference_mode()
def test_different_attention_is_refused(dtype: torch.dtype, changes: dict[str, Any]) -> None:
    model, sequences, expected = loaded(foreign.gpt_neox(), dtype)
    model.attention_config = replace(model.attention_config, **changes)

    with pytest.raises(ModelLoadError, match=r"its logits on the paged KV cache differ from its own by \d"):
        check(model, sequences, expected)


class WithState:
    """A model that also mixes in the previous token, as a convolution does."""

    def __init__(self, model: TransformersModel) -> None:
        self.model = model
        self.dtype = model.dtype
        self.attention_config = model.attention_config

    def __call__(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep, rows: Tensor) -> Tensor:
        logits = self.model(input_ids, positions, attention, rows)
        return logits + 0.3 * logits.roll(1, 0)


@torch.inference_mode()
def test_operations_across_tokens_are_refused() -> None:
    model, sequences, _ = loaded(foreign.gpt_neox(), torch.float32)
    model.model.set_attn_implementation("eager")
    alone = own_logits(model.model, sequences)
    model.model.set_attn_implementation(PAGED)

    with pytest.raises(ModelLoadError, match="logits on the paged KV cache differ"):
        check(WithState(model), sequences, alone)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@torch.inference_mode()
def test_logits_that_are_not_finite(value: float) -> None:
    model, sequences, expected = loaded(foreign.gpt_neox(), torch.float32)

    with pytest.raises(ModelLoadError, match="logits on the paged KV cache differ"):
        check(model, sequences, torch.full_like(expected, value))
