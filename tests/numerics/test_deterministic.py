"""Batch invariance: the output of a request is a function of the request alone, bit for bit.

Varied at once: the other requests and their arrivals, chunk sizes, token budgets, block sizes, preemption, prefix
caching, threads, and resumption at any token.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig

from engine_svc.kernels.build import build, find_compiler
from engine_svc.runners.interface import Runner
from tests.engine_svc import tiny
from tests.engine_svc.running import load
from tests.numerics.schedules import PARAMS, Coverage, Output, random_requests, random_schedule, run_alone, run_schedule

ROUNDS: list[dict[str, Any]] = [
    {"block_size": 1, "tight": False, "caching": True},
    {"block_size": 5, "tight": True, "caching": False},
    {"block_size": 16, "tight": True, "caching": True},
]

ODD: dict[str, Any] = {"intermediate_size": 37, "vocab_size": 101}
FAMILIES = {
    "llama": tiny.llama(attention_bias=True, mlp_bias=True, **ODD),
    "qwen3": tiny.qwen3(tie_word_embeddings=True, **ODD),
    "gemma2": tiny.gemma2(**ODD),
    "olmo2": tiny.olmo2(**ODD),
}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# The compiled kernels are batch-invariant without the flag.
KINDS: dict[str, dict[str, Any]] = {
    "torch float32": {"attention_backend": "reference", "dtype": "float32", "deterministic": True},
    "torch bfloat16": {"attention_backend": "reference", "dtype": "bfloat16", "deterministic": True},
    "compiled float32": {"attention_backend": "cpu", "dtype": "float32"},
    "compiled bfloat16": {"attention_backend": "cpu", "dtype": "bfloat16"},
    "compiled int8": {"attention_backend": "cpu", "dtype": "bfloat16", "quantization": "int8"},
    "compiled int8, int8 KV cache": {
        "attention_backend": "cpu", "dtype": "bfloat16", "quantization": "int8", "kv_cache_dtype": "int8",
    },
    "compiled int16": {"attention_backend": "cpu", "dtype": "bfloat16", "quantization": "int16"},
}  # fmt: skip


@pytest.fixture(scope="module", params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Backend, precision and quantisation."""
    if request.param["attention_backend"] == "cpu":
        if find_compiler() is None:
            pytest.skip("no C++ compiler found")
        build()
    return dict(request.param)


def assert_identical(found: Output, expected_output: Output, what: str) -> None:
    assert found.token_ids == expected_output.token_ids, what
    assert found.logprobs == expected_output.logprobs, what
    assert found.prompt == expected_output.prompt, what


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES.keys())
def test_output_is_a_function_of_the_request(tmp_path: Path, config: PretrainedConfig, kind: dict[str, Any]) -> None:
    rng = Random(f"{config.model_type} {kind}")
    folder = tiny.save(tiny.random_model(config), tmp_path)

    def loaded(block_size: int, num_threads: int) -> Runner:
        return load(folder, **kind, block_size=block_size, num_threads=num_threads, num_blocks=256)

    requests = random_requests(rng, vocab_size=101, max_prompt=32, max_output=16)
    expected = run_alone(loaded(4, 1), requests, block_size=4)
    assert [len(one.token_ids) for one in expected] == [params.get("n", 1) for params in PARAMS]
    coverage = Coverage()
    for number, limits in enumerate(chain(ROUNDS, repeat(ROUNDS[-1], 40))):
        if number >= len(ROUNDS) and coverage.is_complete:
            break
        runner = loaded(limits["block_size"], rng.choice([1, 2]))
        assert runner.info.batch_invariant
        schedule = random_schedule(rng, requests, expected, **limits)
        for found, expected_output in run_schedule(runner, schedule, requests, expected, coverage):
            assert_identical(found, expected_output, str(schedule))
    assert coverage.is_complete, str(coverage)


@pytest.mark.parametrize("config", [FAMILIES["llama"], FAMILIES["gemma2"]], ids=["llama", "gemma2"])
def test_without_the_flag_outputs_differ_by_rounding_only(tmp_path: Path, config: PretrainedConfig) -> None:
    """Seeds, penalties and log probabilities read the whole history without the flag too."""
    rng = Random(config.model_type)
    runner = load(tiny.save(tiny.random_model(config), tmp_path), attention_backend="reference", num_blocks=256)
    requests = random_requests(rng, vocab_size=101, max_prompt=32, max_output=16)
    expected = run_alone(runner, requests, block_size=4)
    assert not runner.info.batch_invariant

    for caching in (False, True):
        schedule = random_schedule(rng, requests, expected, block_size=4, tight=True, caching=caching)
        for found, expected_output in run_schedule(runner, schedule, requests, expected, Coverage()):
            assert found.token_ids == expected_output.token_ids, str(schedule)
            assert logprobs_of(found) == pytest.approx(logprobs_of(expected_output), abs=1e-4)


def logprobs_of(output: Output) -> list[float]:
    """All log probabilities, concatenated."""
    entries = [*(entry for choice in output.logprobs for entry in choice), *(entry for _, entry in output.prompt)]
    return [value for entry in entries for value in (entry.logprob, *(logprob for _, logprob in entry.top))]


def test_output_is_a_function_of_the_request_with_real_weights(smollm2: Path, kind: dict[str, Any]) -> None:
    rng = Random(str(kind))
    runner = load(str(smollm2), **kind, block_size=5, num_threads=2, num_blocks=256)
    requests = random_requests(rng, vocab_size=49152, max_prompt=30, max_output=5)[:4]
    expected = run_alone(runner, requests, block_size=5)
    coverage = Coverage()

    schedule = random_schedule(rng, requests, expected, block_size=5, tight=True, caching=True)
    for found, expected_output in run_schedule(runner, schedule, requests, expected, coverage):
        assert_identical(found, expected_output, str(schedule))

    assert coverage.resumed > 0
