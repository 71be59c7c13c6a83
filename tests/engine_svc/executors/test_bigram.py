"""An executor from outside is served like the others: by settings, with prefix cache, draft tokens and sampler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine_svc.config import Settings
from engine_svc.executors.loading import EXECUTORS
from engine_svc.loading import load_runner
from engine_svc.runners.interface import Runner
from engine_svc.scheduling.speculation import Speculation
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc.executors.bigram import load_bigram
from tests.engine_svc.running import BLOCK_SIZE, greedy, num_preemptions, outputs, run

VOCAB = 40
TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0)) * 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(EXECUTORS, "bigram", load_bigram)
    config = {"architectures": ["BigramForCausalLM"], "vocab_size": VOCAB, "max_position_embeddings": 256}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"table": TABLE}, tmp_path / "model.safetensors")
    return tmp_path


def load(folder: Path, **settings: Any) -> Runner:
    return load_runner(Settings(model=str(folder), executor="bigram", block_size=BLOCK_SIZE, num_blocks=64, **settings))


def greedy_tokens(first: int, count: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        first = int(TABLE[first].argmax())
        found.append(first)
    return found


def test_what_was_loaded(folder: Path) -> None:
    info = load(folder).info

    assert (info.model_type, info.vocab_size, info.max_model_len, info.num_blocks) == ("bigram", VOCAB, 256, 64)
    assert (info.cache_dtype, info.kv_cache_bytes, info.batch_invariant) == ("int64", 64 * BLOCK_SIZE * 8, True)


REQUESTS = [
    greedy([3, 5, 7, 11, 13], 30),
    greedy(range(20), 12, temperature=0.9, seed=4, logprobs=2),
    greedy([1], 20, temperature=1.1, top_p=0.8, n=2, seed=9, repetition_penalty=1.2),
    greedy(range(30, 2, -1), 9, prompt_logprobs=1),
]


def test_outputs_follow_the_table(folder: Path) -> None:
    answers = run(load(folder), REQUESTS)

    assert answers[0].token_ids[0] == greedy_tokens(13, 30)
    assert answers[3].token_ids[0] == greedy_tokens(3, 9)
    expected = TABLE[list(range(30, 3, -1))].log_softmax(-1)[range(27), list(range(29, 2, -1))]
    told = [entry.logprob for entry in answers[3].prompt_logprobs]
    assert told == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": 3},
        {"num_blocks": 12},
        {"caching": True, "max_num_seqs": 1},
        {"speculation": Speculation(6, 24)},
        {"num_blocks": 14, "caching": True, "chunk": 2, "max_num_seqs": 4},
    ],
    ids=str,
)
def test_however_it_is_scheduled(folder: Path, options: dict[str, Any]) -> None:
    runner = load(folder)
    expected = outputs(run(runner, REQUESTS))

    answers = run(runner, REQUESTS, **options)

    assert outputs(answers) == expected
    assert (num_preemptions(answers) > 0) == ("num_blocks" in options)


def test_unsupported_settings_are_refused(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match="executor bigram computes in float32"):
        load(folder, dtype="bfloat16")


def test_missing_weights_are_named(folder: Path) -> None:
    save_file({"tables": TABLE}, folder / "model.safetensors")

    with pytest.raises(ModelLoadError, match="unknown tensor in the checkpoint for this architecture: tables"):
        load(folder)
