"""Greedy outputs of SmolLM2 in float32 equal those of transformers, for any schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine_svc.request import Request, SamplingParams
from engine_svc.runners.interface import Runner
from engine_svc.scheduling.speculation import Speculation
from tests.engine_svc.running import load, num_preemptions, outputs, run
from tests.numerics.smollm2_greedy import NUM_TOKENS, Greedy, generate, load_transformers, recorded

END = frozenset([2])


@pytest.fixture(scope="module")
def runner(smollm2: Path) -> Runner:
    return load(str(smollm2), block_size=16, num_blocks=256, num_threads=None)


@pytest.fixture(scope="module")
def transformers_model(smollm2: Path) -> Any:
    return load_transformers(smollm2)


@pytest.fixture(scope="module")
def greedy() -> list[Greedy]:
    return recorded()


def requests(greedy: list[Greedy]) -> list[Request]:
    """``min_tokens`` is set, because the recording was made to the full length."""
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, min_tokens=NUM_TOKENS)
    return [Request("r", tuple(one.prompt), params, END) for one in greedy]


@torch.inference_mode()
def top1_continuations(model: Any, one: Greedy) -> list[int]:
    """The top-1 token after the prompt, and after each token of the output except the last."""
    logits = model(torch.tensor([one.prompt + one.output[:-1]])).logits[0, len(one.prompt) - 1 :]
    logits[:, list(END)] = -torch.inf
    token_ids: list[int] = logits.argmax(dim=-1).tolist()
    return token_ids


def test_the_recording_equals_transformers(greedy: list[Greedy], transformers_model: Any) -> None:
    assert len(greedy) == 20
    assert all(len(one.output) == NUM_TOKENS for one in greedy)
    for one in greedy:
        # Greedy: every token is the top-1 token after the previous ones.
        assert top1_continuations(transformers_model, one) == one.output
    assert generate(transformers_model, greedy[0].prompt) == greedy[0].output


def test_bfloat16_answers_the_capital_of_france(smollm2: Path, greedy: list[Greedy]) -> None:
    runner = load(str(smollm2), dtype="bfloat16", block_size=16, num_threads=None)
    paris = 7042

    (output,) = outputs(run(runner, requests(greedy[:1]), block_size=16))

    assert paris in greedy[0].output[:12]
    assert paris in output[:12]


@pytest.mark.slow
def test_alone(runner: Runner, greedy: list[Greedy]) -> None:
    found = [outputs(run(runner, [request], block_size=16))[0] for request in requests(greedy)]

    assert found == [one.output for one in greedy]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"chunk": 16}, {"num_blocks": 48}, {"chunk": 16, "num_blocks": 48, "caching": True}],
    ids=["whole prompts", "chunks of 16 tokens", "preempted", "chunks, preempted, cached"],
)
def test_in_a_batch_of_20(runner: Runner, greedy: list[Greedy], options: dict[str, Any]) -> None:
    answers = run(runner, requests(greedy), block_size=16, **options)

    assert outputs(answers) == [one.output for one in greedy]
    assert (num_preemptions(answers) > 0) == ("num_blocks" in options)


@pytest.mark.slow
def test_with_speculation(runner: Runner, greedy: list[Greedy]) -> None:
    repetitive = [one for one in greedy if len(set(one.output)) < 25]
    assert len(repetitive) == 5

    answers = run(runner, requests(repetitive), block_size=16, speculation=Speculation(8, 32))

    assert outputs(answers) == [one.output for one in repetitive]
    assert max(len(chunk.token_ids) for answer in answers for chunk in answer.chunks) > 4
