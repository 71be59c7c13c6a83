"""With ``deterministic``, the output of a request is a function of the request alone, to the last bit.

Everything that must change nothing is varied at once: who else is there and since when, chunks, budgets, block sizes,
preemption, the prefix cache, threads, and being resumed at any token.
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
from tests.numerics.schedules import PARAMS, Result, Seen, alone, play, random_requests, random_schedule

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


# The kernels need no flag for it.
KINDS: dict[str, dict[str, Any]] = {
    "torch float32": {"attention_backend": "reference", "dtype": "float32", "deterministic": True},
    "torch bfloat16": {"attention_backend": "reference", "dtype": "bfloat16", "deterministic": True},
    "compiled float32": {"attention_backend": "cpu", "dtype": "float32"},
    "compiled bfloat16": {"attention_backend": "cpu", "dtype": "bfloat16"},
    "compiled int8": {"attention_backend": "cpu", "dtype": "bfloat16", "quantization": "int8"},
    "compiled int16": {"attention_backend": "cpu", "dtype": "bfloat16", "quantization": "int16"},
}


@pytest.fixture(scope="module", params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """An executor with its precision and quantisation."""
    if request.param["attention_backend"] == "cpu":
        if find_compiler() is None:
            pytest.skip("there is no C++ compiler")
        build()
    return dict(request.param)


def assert_the_same(found: Result, wanted: Result, what: str) -> None:
    assert found.token_ids == wanted.token_ids, what
    assert found.logprobs == wanted.logprobs, what
    assert found.prompt == wanted.prompt, what


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES.keys())
def test_an_answer_depends_on_its_request_alone(tmp_path: Path, config: PretrainedConfig, kind: dict[str, Any]) -> None:
    chance = Random(f"{config.model_type} {kind}")
    folder = tiny.save(tiny.random_model(config), tmp_path)

    def loaded(block_size: int, num_threads: int) -> Runner:
        return load(folder, **kind, block_size=block_size, num_threads=num_threads, num_blocks=256)

    requests = random_requests(chance, vocab_size=101, most_prompt=32, most_output=16)
    expected = alone(loaded(4, 1), requests, block_size=4)
    assert [len(one.token_ids) for one in expected] == [params.get("n", 1) for params in PARAMS]
    seen = Seen()
    for number, limits in enumerate(chain(ROUNDS, repeat(ROUNDS[-1], 9))):
        if number >= len(ROUNDS) and seen.everything:
            break
        runner = loaded(limits["block_size"], chance.choice([1, 2]))
        assert runner.info.batch_invariant
        schedule = random_schedule(chance, requests, expected, **limits)
        for found, wanted in play(runner, schedule, requests, expected, seen):
            assert_the_same(found, wanted, str(schedule))
    assert seen.everything, str(seen)


@pytest.mark.parametrize("config", [FAMILIES["llama"], FAMILIES["gemma2"]], ids=["llama", "gemma2"])
def test_without_the_flag_rounding_is_all_that_differs(tmp_path: Path, config: PretrainedConfig) -> None:
    """Seeds, penalties and log probabilities read the whole history there too."""
    chance = Random(config.model_type)
    runner = load(tiny.save(tiny.random_model(config), tmp_path), attention_backend="reference", num_blocks=256)
    requests = random_requests(chance, vocab_size=101, most_prompt=32, most_output=16)
    expected = alone(runner, requests, block_size=4)
    assert not runner.info.batch_invariant

    for caching in (False, True):
        schedule = random_schedule(chance, requests, expected, block_size=4, tight=True, caching=caching)
        for found, wanted in play(runner, schedule, requests, expected, Seen()):
            assert found.token_ids == wanted.token_ids, str(schedule)
            assert numbers(found) == pytest.approx(numbers(wanted), abs=1e-4)


def numbers(result: Result) -> list[float]:
    """All log probabilities, one after the other."""
    told = [*(entry for choice in result.logprobs for entry in choice), *(entry for _, entry in result.prompt)]
    return [value for entry in told for value in (entry.logprob, *(logprob for _, logprob in entry.top))]


def test_real_weights_are_deterministic(smollm2: Path, kind: dict[str, Any]) -> None:
    chance = Random(str(kind))
    runner = load(str(smollm2), **kind, block_size=5, num_threads=2, num_blocks=256)
    requests = random_requests(chance, vocab_size=49152, most_prompt=30, most_output=5)[:4]
    expected = alone(runner, requests, block_size=5)
    seen = Seen()

    schedule = random_schedule(chance, requests, expected, block_size=5, tight=True, caching=True)
    for found, wanted in play(runner, schedule, requests, expected, seen):
        assert_the_same(found, wanted, str(schedule))

    assert seen.resumed > 0
