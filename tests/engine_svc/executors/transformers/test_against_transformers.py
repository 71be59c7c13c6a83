"""Families without a native file have transformers' logits on our attention too, on tiny random checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PretrainedConfig

from engine_svc.executors.transformers.executor import TransformersExecutor
from engine_svc.kernels.packing import Format
from tests.engine_svc import foreign, tiny
from tests.numerics.test_against_transformers import LENGTH, expected_logits, load, logits_of

CONFIGS = foreign.FAMILIES | {
    "gpt_neox, tied, rotated whole": foreign.gpt_neox(
        tie_word_embeddings=True,
        use_parallel_residual=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 1.0},
    ),
    "gpt_neox, an odd head size": foreign.gpt_neox(hidden_size=44, attention_bias=False),
    "gpt_neox with stretched positions": foreign.gpt_neox(
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "partial_rotary_factor": 0.5},
    ),
    "opt, norms behind": foreign.opt(do_layer_norm_before=False, word_embed_proj_dim=24, enable_bias=False),
    # A native family, but not natively.
    "qwen 3 with stretched positions": tiny.qwen3(
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
    ),
    "llama with another activation": tiny.llama(hidden_act="relu"),
    "starcoder2 without a window": foreign.starcoder2(sliding_window=None, tie_word_embeddings=False),
}
STEPS = {"whole": [LENGTH], "chunks": [16, 16, 16, 12], "decode": [17] + [1] * 43}


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """The attention backend."""
    if request.param == "cpu":
        request.getfixturevalue("kernels")
    return str(request.param)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_logits_equal(tmp_path: Path, config: PretrainedConfig, backend: str) -> None:
    theirs = tiny.random_model(config)
    ours = load(Path(tiny.save(theirs, tmp_path)), Format.FLOAT32, backend)
    token_ids = torch.arange(LENGTH) * 7 % config.vocab_size
    expected = expected_logits(theirs, token_ids)

    found = [logits_of(ours, token_ids, steps) for steps in STEPS.values()]

    info = ours.info
    assert (info.model_type, info.vocab_size, info.max_position_embeddings) == (config.model_type, 97, 128)
    assert expected.std() > 0.5, "logits that say nothing would equal anything"
    for logits in found:
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt_neox", "cohere", "starcoder2", "mixtral"])
def test_bfloat16_is_as_near_to_float32_as_transformers_own(tmp_path: Path, name: str) -> None:
    theirs = tiny.random_model(CONFIGS[name])
    ours = load(Path(tiny.save(theirs, tmp_path)), Format.BFLOAT16)
    token_ids = torch.arange(LENGTH) * 7 % 97
    truth = expected_logits(theirs, token_ids)
    rounded = expected_logits(theirs.bfloat16(), token_ids).float()

    found = logits_of(ours, token_ids, [LENGTH]).float()

    assert isinstance(ours, TransformersExecutor)
    assert ours.model.dtype == ours.model.attention_config.dtype == torch.bfloat16
    assert (found - truth).square().mean() < 1.5 * (rounded - truth).square().mean()
