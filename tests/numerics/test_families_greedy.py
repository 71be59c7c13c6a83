"""Greedy outputs of every family equal transformers, through the whole engine: chunks, cache, batches, preemption.

Native families, and those computed by transformers on our attention.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig

from tests.engine_svc import foreign, tiny
from tests.engine_svc.running import greedy, load, num_preemptions, outputs, run

NUM_TOKENS = 20
# Longer than the windows, about as long, and shorter.
PROMPTS = [[7 * i % 97 for i in range(40)], [5 * i % 97 for i in range(17)], [9, 4, 11]]
FAMILIES = {
    "llama": tiny.llama(),
    "mistral": tiny.mistral(),
    "qwen2": tiny.qwen2(use_sliding_window=True, sliding_window=16, max_window_layers=1),
    "qwen3": tiny.qwen3(tie_word_embeddings=True),
    "gemma2": tiny.gemma2(),
    "gemma3_text": tiny.gemma3(),
    "phi3": tiny.phi3(sliding_window=16),
    "olmo2": tiny.olmo2(),
} | foreign.FAMILIES


@torch.inference_mode()
def expected_output(model: Any, prompt: list[int]) -> list[int]:
    """The greedy output, without a KV cache."""
    token_ids = list(prompt)
    for _ in range(NUM_TOKENS):
        token_ids.append(int(model(torch.tensor([token_ids])).logits[0, -1].argmax()))
    return token_ids[len(prompt) :]


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES.keys())
def test_greedy_ids_equal(tmp_path: Path, config: PretrainedConfig) -> None:
    model = tiny.random_model(config)
    runner = load(tiny.save(model, tmp_path))
    requests = [greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    expected = [expected_output(model, prompt) for prompt in PROMPTS]

    together = run(runner, requests)
    alone = [outputs(run(runner, [request], chunk=5))[0] for request in requests]
    preempted = run(runner, requests, num_blocks=22, chunk=3, caching=True)

    assert runner.info.model_type == config.model_type
    assert outputs(together) == alone == outputs(preempted) == expected
    assert num_preemptions(preempted) > 0
