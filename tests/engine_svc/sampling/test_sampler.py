from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine_svc.output import Sampled
from engine_svc.sampling.sampler import Sampler
from engine_svc.scheduling.sequence import Sequence
from tests.engine_svc.sampling.given import assert_drawn_from, sequence

pytestmark = pytest.mark.usefixtures("operations")


def sample(
    logits: torch.Tensor | list[list[float]], *sequences: Sequence, sampler: Sampler | None = None
) -> list[Sampled]:
    """One step; every row must succeed."""
    results = (sampler or Sampler()).sample(torch.as_tensor(logits), sequences)
    assert all(isinstance(result, Sampled) for result in results), results
    return [result for result in results if isinstance(result, Sampled)]


def tokens(results: list[Sampled]) -> list[int]:
    return [token for result in results for token in result.token_ids]


@pytest.mark.parametrize(
    "params", [{"temperature": 0.0}, {"top_p": 0.0}, {"temperature": 0.0, "top_k": 2, "min_p": 0.5}]
)
def test_greedy_takes_the_best_token_and_the_lowest_id_of_equals(params: dict[str, Any]) -> None:
    rows = [[1.0, 5.0, 2.0], [1.0, 1.0, 1.0], [-5.0, 0.0, 0.0], [-math.inf] * 3]

    assert tokens(sample(rows, *[sequence(**params) for _ in rows])) == [1, 0, 1, 0]


def test_greedy_of_equals_in_a_large_vocabulary() -> None:
    logits = torch.zeros(3, 49_153)
    logits[1, 30_000:] = 1.0
    logits[2, -1] = 1.0

    assert tokens(sample(logits, *[sequence(temperature=0.0) for _ in range(3)])) == [0, 30_000, 49_152]


@pytest.mark.parametrize("top_k", [0, -1, 3, 1000])
def test_tokens_come_with_their_probabilities_when_nothing_is_filtered(top_k: int) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0]]).repeat(2000, 1)

    found = tokens(sample(logits, *[sequence(seed=seed, top_k=top_k) for seed in range(2000)]))

    assert_drawn_from(found, torch.tensor([1.0, 3.0, 2.0]).exp().numpy())


def test_penalties_and_biases_hold_for_greedy_choice_too() -> None:
    rows = [[3.0, 2.9, 0.0]] * 4

    found = sample(
        rows,
        sequence([0], temperature=0.0, frequency_penalty=0.2),
        sequence(temperature=0.0, logit_bias=((2, 50.0),)),
        sequence(temperature=0.0, min_tokens=1, eos=[0]),
        sequence(temperature=0.0),
    )

    assert tokens(found) == [1, 2, 1, 0]


def generate(logits_of: Any, first: Sequence, others: list[Sequence], *, reverse: bool, length: int = 12) -> list[int]:
    """Continue ``first`` in a batch with others; returns its output."""
    sampler = Sampler()
    for _ in range(length):
        batch = [*others, first] if reverse else [first, *others]
        results = sample(torch.stack([logits_of(one) for one in batch]), *batch, sampler=sampler)
        for one, result in zip(batch, results, strict=True):
            one.token_ids += result.token_ids
    return first.token_ids[first.num_prompt_tokens :]


def model(one: Sequence) -> torch.Tensor:
    """Logits that depend on the whole history."""
    generator = torch.Generator().manual_seed(hash(tuple(one.token_ids)) % 2**63)
    return torch.randn(500, generator=generator) * 2


def test_a_seeded_request_draws_the_same_alone_with_neighbours_and_in_another_row() -> None:
    def a() -> Sequence:
        return sequence(prompt=[1, 2], seed=42, temperature=0.8)

    def b(seed: int) -> Sequence:
        return sequence(prompt=[9], seed=seed, temperature=0.8, top_p=0.7, repetition_penalty=1.2, logprobs=3)

    alone = generate(model, a(), [], reverse=False)

    assert generate(model, a(), [b(77)], reverse=False) == alone
    assert generate(model, a(), [b(78), b(79), a()], reverse=True) == alone
    assert generate(model, sequence(prompt=[1, 2], seed=43, temperature=0.8), [], reverse=False) != alone


@pytest.mark.parametrize("cut", [1, 4, 11])
def test_a_new_sampler_continues_with_the_same_tokens(cut: int) -> None:
    params: dict[str, Any] = {"seed": 7, "frequency_penalty": 0.5, "repetition_penalty": 1.3, "top_k": 50}
    whole = generate(model, sequence(prompt=[1, 2], **params), [], reverse=False)

    resumed = sequence(whole[:cut], prompt=[1, 2], **params)

    assert generate(model, resumed, [], reverse=False, length=12 - cut) == whole


def test_choices_of_one_request_differ() -> None:
    choices = [sequence(prompt=[1], seed=5, index=index) for index in range(4)]

    outputs = {tuple(generate(model, choice, [], reverse=False)) for choice in choices}

    assert len(outputs) == 4


@pytest.mark.parametrize("cut", [0, 5])
def test_a_choice_resumed_alone_draws_its_own_noise(cut: int) -> None:
    whole = generate(model, sequence(prompt=[1], seed=5, index=3), [], reverse=False)
    alone = sequence(whole[:cut], prompt=[1], seed=5)
    alone.request = replace(alone.request, choice_index=3)

    assert generate(model, alone, [], reverse=False, length=12 - cut) == whole


def test_logprobs_are_of_the_raw_logits() -> None:
    row = [2.0, 1.0, 0.0, -1.0]
    changed = sequence(
        [0, 0], temperature=0.0, logprobs=2, frequency_penalty=2.0, logit_bias=((3, 90.0),), repetition_penalty=2.0
    )

    (found,) = sample([row], changed)

    expected = torch.tensor(row).log_softmax(0).tolist()
    assert found.token_ids == (3,)
    assert math.isclose(found.logprobs[0].logprob, expected[3], rel_tol=1e-6)
    assert [token for token, _ in found.logprobs[0].top] == [0, 1]
    assert math.isclose(found.logprobs[0].top[0][1], expected[0], rel_tol=1e-6)


def test_logprobs_only_where_requested() -> None:
    rows = [[0.0, 1.0, 2.0]] * 4

    none, zero, two, more = sample(
        rows,
        sequence(temperature=0.0),
        sequence(temperature=0.0, logprobs=0),
        sequence(temperature=0.0, logprobs=2),
        sequence(temperature=1.0, top_k=1, logprobs=20),
    )

    assert none.logprobs == ()
    assert [len(result.logprobs[0].top) for result in (zero, two, more)] == [0, 2, 3]
    assert more.token_ids == (2,)
    assert all(math.isfinite(value) for _, value in more.logprobs[0].top)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"temperature": 1.0, "logprobs": 2}, {"top_p": 0.5}])
def test_nan_logits_fail_their_row_alone(bad: float, params: dict[str, Any]) -> None:
    rows = torch.tensor([[0.0, 9.0, 0.0], [0.0, bad, 9.0], [9.0, 0.0, 0.0]])

    first, broken, last = Sampler().sample(rows, [sequence(**params) for _ in range(3)])

    assert isinstance(first, Sampled)
    assert isinstance(broken, FloatingPointError)
    assert isinstance(last, Sampled)
    assert (first.token_ids, last.token_ids) == ((1,), (0,))


def test_a_tiny_vocabulary_that_may_not_end_still_yields_a_token() -> None:
    everything = frozenset(range(3))

    found = sample(
        [[1.0, 2.0, 3.0]] * 2,
        sequence(temperature=0.0, min_tokens=5, stop_token_ids=everything),
        sequence(temperature=1.0, min_tokens=5, stop_token_ids=everything, top_p=0.5),
    )

    assert tokens(found) == [0, 0]


def test_rounded_logits_are_taken_as_they_are() -> None:
    logits = torch.tensor([[1.0, 1.001, 3.0, 2.999]]).bfloat16()

    (found,) = sample(logits, sequence(temperature=0.0, logprobs=2))

    assert found.token_ids == (2,)
    assert [token for token, _ in found.logprobs[0].top] == [2, 3]
    assert found.logprobs[0].top[0][1] == found.logprobs[0].top[1][1], "equal in bfloat16"


def test_the_logits_are_left_as_they_were() -> None:
    logits = torch.randn(3, 50)
    before = logits.clone()

    sample(logits, sequence(seed=1), sequence([1], repetition_penalty=2.0), sequence(logit_bias=((1, 5.0),), top_p=0.5))

    assert torch.equal(logits, before)


def test_a_released_sequence_leaves_nothing_behind() -> None:
    sampler, one, other = Sampler(), sequence(), sequence()
    sample([[1.0, 2.0], [1.0, 2.0]], one, other, sampler=sampler)

    sampler.release(one)
    assert sampler.num_known == 1
    sampler.release(other)
    sampler.release(sequence())
    assert sampler.num_known == 0


def test_a_batch_in_groups_is_the_same_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    logits = torch.randn(9, 50) * 3
    logits[4] = math.nan
    options: list[dict[str, Any]] = [{}, {"top_p": 0.5}, {"temperature": 0.0}, {"logprobs": 3}]
    batch = [sequence([1], seed=row, **options[row % 4]) for row in range(9)]
    whole = Sampler().sample(logits, batch)

    monkeypatch.setattr("engine_svc.sampling.sampler._GROUP_ELEMENTS", 100)
    grouped = Sampler().sample(logits, batch)

    assert isinstance(whole[4], FloatingPointError)
    assert isinstance(grouped[4], FloatingPointError)
    assert whole[:4] + whole[5:] == grouped[:4] + grouped[5:]


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0, "logprobs": 2},
        {"temperature": 0.9, "seed": 5, "logprobs": 1},
        {"temperature": 1.1, "top_p": 0.9, "top_k": 40, "seed": 6},
        {"temperature": 0.0, "repetition_penalty": 1.4, "frequency_penalty": 0.7, "presence_penalty": 0.2},
        {"temperature": 0.8, "min_tokens": 4, "stop_token_ids": frozenset(range(0, 500, 2)), "logit_bias": ((4, 3.0),)},
    ],
    ids=str,
)
@pytest.mark.parametrize("right", [0, 1, 3])
def test_drafts_are_verified_against_tokens_sampled_one_by_one(params: dict[str, Any], right: int) -> None:
    def fresh() -> Sequence:
        return sequence([8, 8, 9], prompt=[1, 2], **params)

    one_by_one, sampler = fresh(), Sampler()
    results = []
    for _ in range(4):
        results += sample(model(one_by_one)[None], one_by_one, sampler=sampler)
        one_by_one.token_ids += results[-1].token_ids
    chosen = tokens(results)
    drafts = tuple(chosen[:right]) + tuple((token + 1) % 500 for token in chosen[right:3])
    ahead = [sequence([8, 8, 9, *drafts[:count]], prompt=[1, 2]) for count in range(4)]
    mate = sequence(prompt=[3], temperature=0.0)
    logits = torch.stack([model(mate), *map(model, ahead), model(mate)])

    first, found, last = Sampler().sample(logits, [mate, fresh(), mate], [(), drafts, ()])

    assert first == last
    assert isinstance(found, Sampled)
    assert list(found.token_ids) == chosen[: right + 1]
    assert found.logprobs == tuple(one.logprobs[0] for one in results[: right + 1] if one.logprobs)


def test_nan_logits_after_a_draft_keep_the_tokens_before() -> None:
    rows = torch.tensor([[0.0, 9.0, 0.0], [0.0, math.nan, 0.0], [0.0, 0.0, 9.0]])

    right, wrong = (Sampler().sample(rows, [sequence(temperature=0.0)], [drafts]) for drafts in ((1, 1), (2, 1)))

    assert right == wrong == [Sampled((1,))]


def test_no_rows_no_tokens() -> None:
    assert Sampler().sample(torch.empty(0, 10), []) == []
