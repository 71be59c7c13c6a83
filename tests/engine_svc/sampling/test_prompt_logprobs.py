"""Log probabilities of prompts equal those of transformers under any schedule, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine_svc.output import Sampled
from engine_svc.runners.interface import Runner
from engine_svc.sampling.logprobs import add_prompt_logprobs
from engine_svc.scheduling.sequence import Sequence
from engine_svc.scheduling.step import ScheduledSequence
from svclib.errors import InternalError
from tests.engine_svc import tiny
from tests.engine_svc.given import Answer
from tests.engine_svc.running import greedy, load, num_preemptions, outputs, run
from tests.engine_svc.sampling.given import sequence

PROMPT = [7 * i % 97 for i in range(30)]
OTHER = [5 * i % 97 for i in range(23)]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny.random_model(tiny.llama())


@pytest.fixture(scope="module")
def runner(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return load(tiny.save(model, tmp_path_factory.mktemp("llama")))


@torch.inference_mode()
def expected(model: Any, prompt: list[int]) -> torch.Tensor:
    """Log probabilities of all tokens at each position but the last, [tokens - 1, vocab]"""
    logprobs: torch.Tensor = model(torch.tensor([prompt])).logits[0, :-1].log_softmax(-1)
    return logprobs


def assert_told(answer: Answer, model: Any, prompt: list[int], num_top: int) -> None:
    logprobs = expected(model, prompt)
    assert answer.prompt_token_ids == prompt[1:]
    assert len(answer.prompt_logprobs) == len(prompt) - 1
    for row, token_id, told in zip(logprobs, prompt[1:], answer.prompt_logprobs, strict=True):
        assert told.logprob == pytest.approx(row[token_id].item(), abs=1e-4)
        assert [value for _, value in told.top] == pytest.approx(row.topk(num_top).values.tolist(), abs=1e-4)
        assert [token_id for token_id, _ in told.top] == row.topk(num_top).indices.tolist()


@pytest.mark.parametrize("num_top", [0, 1, 5])
def test_they_are_those_of_transformers(runner: Runner, model: Any, num_top: int) -> None:
    (answer,) = run(runner, [greedy(PROMPT, 3, prompt_logprobs=num_top)])

    assert_told(answer, model, PROMPT, num_top)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": 1},
        {"chunk": 7},
        {"max_num_batched_tokens": 32, "chunk": 5},
        {"num_blocks": 15, "chunk": 6},
        {"num_blocks": 15, "chunk": 6, "caching": True},
    ],
)
def test_a_schedule_changes_nothing(runner: Runner, model: Any, options: dict[str, Any]) -> None:
    requests = [greedy(prompt, 9, prompt_logprobs=3) for prompt in (PROMPT, OTHER)]

    answers = run(runner, requests, **options)

    for answer, prompt in zip(answers, (PROMPT, OTHER), strict=True):
        assert_told(answer, model, prompt, 3)
    assert outputs(answers) == outputs(run(runner, [greedy(prompt, 9) for prompt in (PROMPT, OTHER)]))
    assert (num_preemptions(answers) > 0) == ("num_blocks" in options)


@pytest.mark.parametrize("caching", [False, True])
def test_a_prompt_preempted_halfway_is_reported_once(runner: Runner, model: Any, caching: bool) -> None:
    requests = [greedy([5], 25), greedy(PROMPT, 4, prompt_logprobs=2)]

    _old, young = run(runner, requests, chunk=1, num_blocks=12, caching=caching)

    assert num_preemptions([young]) == 1
    assert len([chunk for chunk in young.chunks if chunk.prompt is not None]) == len(PROMPT) - 1
    assert_told(young, model, PROMPT, 2)


def test_prompt_logprobs_recompute_a_cached_prompt(runner: Runner, model: Any) -> None:
    requests = [greedy(PROMPT, 2), greedy(PROMPT, 2, prompt_logprobs=2), greedy(PROMPT, 2)]

    first, asking, last = run(runner, requests, caching=True, max_num_seqs=1)

    assert [answer.heads[0].num_cached_tokens for answer in (first, asking, last)] == [0, 0, 28]
    assert outputs([first]) == outputs([asking]) == outputs([last])
    assert_told(asking, model, PROMPT, 2)
    assert first.prompt_logprobs == last.prompt_logprobs == []


def test_choices_report_prompt_logprobs_once(runner: Runner, model: Any) -> None:
    request = greedy(PROMPT, 4, temperature=1.0, n=3, seed=5, prompt_logprobs=1)

    (answer,) = run(runner, [request], chunk=4)

    assert_told(answer, model, PROMPT, 1)
    assert sorted(answer.token_ids) == [0, 1, 2]


def test_a_prompt_of_one_token_has_none(runner: Runner) -> None:
    (answer,) = run(runner, [greedy([5], 2, prompt_logprobs=2)])

    assert answer.prompt_logprobs == []
    assert len(answer.token_ids[0]) == 2


def test_chunks_are_reported_as_they_are_computed(runner: Runner) -> None:
    (answer,) = run(runner, [greedy(PROMPT, 2, prompt_logprobs=0)], chunk=8)

    told = [len(chunk.prompt.token_ids) for chunk in answer.chunks if chunk.prompt is not None]
    assert told == [8, 8, 8, 5]
    assert len(answer.heads) == 1


@pytest.mark.parametrize("place", [3, 29])
def test_nan_logits_of_a_prompt_fail_it_alone(model: Any, tmp_path: Path, place: int) -> None:
    broken = tiny.random_model(tiny.llama())
    with torch.no_grad():
        broken.model.embed_tokens.weight[96] = torch.nan
    prompt = [*PROMPT[:place], 96, *PROMPT[place + 1 :]]

    bad, good = run(
        load(tiny.save(broken, tmp_path)),
        [greedy(prompt, 3, prompt_logprobs=1), greedy(OTHER, 3, prompt_logprobs=1)],
        chunk=4,
    )

    assert isinstance(bad.error, InternalError)
    assert_told(good, model, OTHER, 1)


class Counting:
    """Logits that record how many rows are read at a time."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.rows: list[int] = []
        self._logits = logits

    def __len__(self) -> int:
        return len(self._logits)

    def __getitem__(self, rows: slice, /) -> torch.Tensor:
        self.rows.append(rows.stop - rows.start)
        return self._logits[rows]


def entry(one: Sequence, start: int, num_tokens: int) -> ScheduledSequence:
    return ScheduledSequence(one, start, num_tokens)


@pytest.mark.parametrize(("elements", "groups"), [(200, [2] * 5), (100, [1] * 10), (99, [1] * 10), (700, [7, 3])])
def test_logits_are_made_for_a_few_rows_at_a_time(
    monkeypatch: pytest.MonkeyPatch, elements: int, groups: list[int]
) -> None:
    logits = Counting(torch.randn(10, 100))
    batch = [entry(sequence(prompt=range(11), prompt_logprobs=4), 0, 10)]
    (whole,) = add_prompt_logprobs(batch, [], logits, 0, 100)
    monkeypatch.setattr("engine_svc.sampling.logprobs._GROUP_ELEMENTS", elements)
    logits.rows = []

    (grouped,) = add_prompt_logprobs(batch, [], logits, 0, 100)

    assert grouped == whole
    assert logits.rows == groups


def test_each_entry_gets_what_is_its_own() -> None:
    asking, other, chunk, told = (
        sequence(prompt=range(5), prompt_logprobs=0),
        sequence(prompt=range(3)),
        sequence(prompt=range(9), prompt_logprobs=0),
        sequence(prompt=range(4), prompt_logprobs=0),
    )
    told.num_prompt_logprobs = 3
    batch = [entry(asking, 0, 5), entry(other, 0, 3), entry(chunk, 2, 3), entry(told, 3, 1), entry(other, 0, 2)]
    chunk.num_prompt_logprobs = 3

    results = add_prompt_logprobs(batch, [Sampled((1,)), Sampled((2,)), Sampled((3,))], torch.zeros(9, 20), 3, 20)

    assert [result.token_ids for result in results if isinstance(result, Sampled)] == [(1,), (2,), (), (3,)]
    prompts = [result.prompt.token_ids for result in results if isinstance(result, Sampled) and result.prompt]
    assert prompts == [(1, 2, 3, 4), (4, 5)], "what was told is not told again"


def test_a_fault_of_the_sampler_is_kept() -> None:
    fault = FloatingPointError("logits are not finite")
    batch = [entry(sequence(prompt=range(5), prompt_logprobs=0), 0, 5)]

    assert add_prompt_logprobs(batch, [fault], torch.zeros(5, 20), 1, 20) == [fault]
