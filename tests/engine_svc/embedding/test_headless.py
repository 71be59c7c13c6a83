from __future__ import annotations

from pathlib import Path

import pytest

from engine_svc.embedding.headless import Headless, causal_lm_name
from engine_svc.weights.checkpoint import open_checkpoint
from tests.engine_svc import tiny


@pytest.mark.parametrize(
    ("saved", "whole"),
    [
        ("Qwen3Model", "Qwen3ForCausalLM"),
        ("Qwen3ForCausalLM", "Qwen3ForCausalLM"),
        ("FalconModel", "FalconModel"),
        ("BertModel", "BertModel"),
    ],
)
def test_causal_lm_name(saved: str, whole: str) -> None:
    assert causal_lm_name(saved) == whole


def test_checkpoints_with_and_without_lm_head_are_equal(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.llama(tie_word_embeddings=False))
    whole = Headless(open_checkpoint(Path(tiny.save(model, tmp_path / "whole"))))
    below = Headless(open_checkpoint(Path(tiny.save(model.base_model, tmp_path / "below"))))

    names = [{tensor.name for tensor in checkpoint.tensors()} for checkpoint in (whole, below)]

    assert names[0] == names[1] == {name for name in model.state_dict() if name != "lm_head.weight"}
    for checkpoint in (whole, below):
        assert checkpoint.config["architectures"] == ["LlamaForCausalLM"]
        assert checkpoint.config["tie_word_embeddings"]
        assert checkpoint.eos_token_ids == (2,)
        assert not checkpoint.is_quantized
