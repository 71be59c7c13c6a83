from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    DeepseekV3Config,
    Gemma4UnifiedTextConfig,
    GptOssConfig,
    PretrainedConfig,
)
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask, create_chunked_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine_svc.attention.interface import AttentionConfig
from engine_svc.executors.transformers.survey import SURVEY, survey_attention
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import foreign

LONGEST = 128


def survey(config: PretrainedConfig, longest: int = LONGEST) -> AttentionConfig:
    model = AutoModelForCausalLM.from_config(config, attn_implementation=SURVEY).eval()
    return survey_attention(model, config, longest)


def test_plain_attention() -> None:
    assert survey(foreign.gpt_neox()) == AttentionConfig(
        num_heads=4, num_kv_heads=4, head_dim=8, dtype=torch.float32, windows=(None, None), scale=8**-0.5
    )


def test_features_of_a_family_are_found() -> None:
    granite, gemma = survey(foreign.FAMILIES["granite"]), survey(foreign.FAMILIES["vaultgemma"])

    assert (granite.num_kv_heads, granite.scale) == (2, 0.3)
    assert (gemma.scale, gemma.softcap, gemma.head_dim) == (5**-0.5, 3.0, 6)
    assert survey(foreign.FAMILIES["gpt_bigcode"]).num_kv_heads == 1
    assert survey(foreign.FAMILIES["opt"]).scale == 1.0


@pytest.mark.parametrize(
    ("window", "expected"), [(16, 16), (1, 1), (127, 127), (128, None), (4096, None), (None, None)]
)
def test_windows_are_found_however_long(window: int | None, expected: int | None) -> None:
    assert survey(foreign.starcoder2(sliding_window=window)).windows == (expected, expected)
    assert survey(foreign.starcoder2(sliding_window=window), 2**16).windows == (window, window)


def test_windows_of_some_layers_are_found() -> None:
    assert survey(foreign.FAMILIES["olmo3"]).windows == (16, None)


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_sequences_may_be_short(longest: int) -> None:
    assert survey(foreign.starcoder2(sliding_window=2), longest).windows == ((2, 2) if longest > 2 else (None, None))


SMALL: dict[str, Any] = foreign.GROUPED | {"num_local_experts": 2, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (GptOssConfig(**(SMALL | {"head_dim": 8})), "it has attention sinks"),
        (
            DeepseekV3Config(**(SMALL | {"kv_lora_rank": 8, "q_lora_rank": 8})),
            "values of size 128 but keys of size 192",
        ),
        (BertConfig(**foreign.ALIKE), "its mask is neither causal nor a sliding window"),
        (BertConfig(**(foreign.ALIKE | {"is_decoder": True, "add_cross_attention": False})), None),
        (Gemma4UnifiedTextConfig(**foreign.GROUPED), "layers differ in attention head_dim"),
    ],
    ids=["sinks", "latent heads", "both directions", "one direction", "two kinds of heads"],
)
def test_real_families(config: PretrainedConfig, reason: str | None) -> None:
    if reason is None:
        assert survey(config).windows == (None, None)
        return
    with pytest.raises(ModelLoadError, match=reason):
        survey(config)


class Odd(nn.Module):
    """One layer with unusual arguments to its attention."""

    def __init__(self, mask: Any = create_causal_mask, *, shape: tuple[int, int] = (4, 6), **options: Any) -> None:
        super().__init__()
        self.mask = mask
        self.shape = shape
        self.options = options
        self.config = PretrainedConfig.from_dict(
            {"num_hidden_layers": 1, "attention_chunk_size": 8}, attn_implementation=SURVEY
        )

    def forward(self, input_ids: Tensor, **_: Any) -> None:
        tokens, size = self.shape
        inputs = torch.ones(1, 4, 6), None, None
        mask = self.mask(self.config, *inputs) if callable(self.mask) else self.mask
        attention = ALL_ATTENTION_FUNCTIONS[SURVEY]
        query, key, value = torch.ones(1, 2, 4, 6), torch.ones(1, 2, tokens, 6), torch.ones(1, 2, tokens, size)
        attention(self, query, key, value, mask, **self.options)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Odd(create_bidirectional_mask), "its mask is neither causal nor a sliding window"),
        (Odd(create_chunked_causal_mask), "its mask is neither causal nor a sliding window"),
        (Odd(torch.zeros(1, 2, 4, 4)), "build a mask or bias of their own"),
        (Odd(lambda *given: create_causal_mask(*given) * 1.0), "build a mask or bias of their own"),
        (Odd(lambda *_: None, is_causal=False), "its attention is not causal"),
        (Odd(position_bias=torch.zeros(1)), "it has a position bias"),
        (Odd(block_indices=torch.zeros(1)), "it has sparse attention"),
        (Odd(new_trick=True), "it has the attention option new_trick"),
        (Odd(scaling=torch.ones(1)), "the scale of its attention scores is a tensor"),
        (Odd(shape=(4, 8)), "values of size 8 but keys of size 6"),
        (Odd(shape=(7, 6)), "its attention is not over its own tokens only"),
    ],
)
def test_unsupported_attention_is_refused_by_name(model: Odd, reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        survey_attention(model, model.config, LONGEST)


def test_options_without_effect_are_accepted() -> None:
    model = Odd(dropout=0.0, position_ids=torch.arange(4), new_trick=None)

    assert survey_attention(model, model.config, LONGEST).windows == (None,)


def test_a_window_given_without_a_mask() -> None:
    model = Odd(lambda *_: None, sliding_window=7)

    assert survey_attention(model, model.config, LONGEST).windows == (7,)


def test_layers_without_attention() -> None:
    model = Odd()
    model.config.num_hidden_layers = 3

    with pytest.raises(ModelLoadError, match="2 layers have no attention, or bypass AttentionInterface"):
        survey_attention(model, model.config, LONGEST)
