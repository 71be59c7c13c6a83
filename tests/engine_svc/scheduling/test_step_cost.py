from __future__ import annotations

import math
import random
from dataclasses import dataclass

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from engine_svc.scheduling.step import ScheduledSequence
from engine_svc.scheduling.step_cost import StepCost, StepLoad, load_of
from tests.engine_svc import given


@dataclass(frozen=True)
class Machine:
    """The true time of a step."""

    fixed: float = 0.01
    decode_token: float = 0.002
    decode_context: float = 1e-6
    prefill_token: float = 0.0013
    prefill_pair: float = 7e-7

    def seconds(self, load: StepLoad) -> float:
        return (
            self.fixed
            + self.decode_token * load.decode_tokens
            + self.decode_context * load.decode_context
            + self.prefill_token * load.prefill_tokens
            + self.prefill_pair * load.prefill_pairs
        )


machines = st.builds(
    Machine,
    st.floats(1e-4, 0.2),
    st.floats(1e-5, 0.02),
    st.floats(0, 1e-5),
    st.floats(1e-5, 0.02),
    st.floats(0, 1e-5),
)


def decode(num_seqs: int, context: int) -> StepLoad:
    return StepLoad(num_seqs, num_seqs * context)


def prompt_alone(cost: StepCost, machine: Machine, noise: float = 0.0, rng: random.Random | None = None) -> None:
    learn(cost, machine, [StepLoad().with_prefill(start, 256) for start in range(0, 4096, 256)], noise, rng)


def learn(
    cost: StepCost, machine: Machine, loads: list[StepLoad], noise: float = 0.0, rng: random.Random | None = None
) -> None:
    for load in loads:
        cost.learn(load, machine.seconds(load) * (rng.lognormvariate(0, noise) if rng else 1.0))


def mixed(rng: random.Random, count: int) -> list[StepLoad]:
    """Steps of some sequences with a chunk of a prompt."""
    return [
        decode(rng.randint(1, 12), rng.randint(50, 900)).with_prefill(rng.randrange(4000), rng.randint(16, 128))
        for _ in range(count)
    ]


def test_a_load_is_the_sum_of_what_each_token_attends_to() -> None:
    decoding, prompt, drafting = (given.sequence(prompt) for prompt in (5, 100, 9))
    batch = [
        ScheduledSequence(decoding, 4, 1),
        ScheduledSequence(prompt, 16, 4),
        ScheduledSequence(drafting, 8, 3, drafts=(1, 2)),
    ]
    load = StepLoad(decode_tokens=4, decode_context=5 + 9 + 10 + 11, prefill_tokens=4, prefill_pairs=17 + 18 + 19 + 20)
    assert load_of(batch) == load
    for entry in batch:
        entry.sequence.token_ids.append(7)  # as when results are applied
    assert load_of(batch) == load


def test_nothing_is_known_at_first() -> None:
    cost = StepCost()
    assert cost.seconds(decode(8, 100)) == 0.0
    assert cost.max_prefill_tokens == 0
    assert cost.prefill_tokens_within(1.0, 0) > 10_000
    assert cost.prefill_tokens_within(0.0, 0) == cost.decode_tokens_within(-1.0, 5.0) == 0


@settings(max_examples=50, deadline=None)
@hypothesis.given(machines, st.integers(0, 2**32))
def test_any_linear_machine_is_learned(machine: Machine, seed: int) -> None:
    cost, rng = StepCost(), random.Random(seed)
    prompt_alone(cost, machine)
    learn(cost, machine, [decode(rng.randint(1, 16), rng.randint(10, 2000)) for _ in range(60)])
    learn(cost, machine, mixed(rng, 60))
    for load in [*mixed(rng, 5), decode(4, 300), StepLoad().with_prefill(1000, 200)]:
        assert cost.seconds(load) == pytest.approx(machine.seconds(load), rel=0.1)


@settings(max_examples=50, deadline=None)
@hypothesis.given(machines, st.integers(0, 4000), st.floats(0.001, 3.0))
def test_tokens_that_fit_take_the_time_and_one_more_takes_longer(machine: Machine, start: int, seconds: float) -> None:
    cost = StepCost()
    prompt_alone(cost, machine)
    base = cost.seconds(StepLoad())
    count = cost.prefill_tokens_within(seconds, start)
    assert cost.seconds(StepLoad().with_prefill(start, count)) - base <= seconds * 1.000001
    assert cost.seconds(StepLoad().with_prefill(start, count + 1)) - base >= seconds * 0.999999


def test_a_chunk_far_into_a_prompt_costs_more() -> None:
    cost = StepCost()
    prompt_alone(cost, Machine())
    assert cost.prefill_tokens_within(0.1, 3800) < 0.5 * cost.prefill_tokens_within(0.1, 0)


def test_draft_tokens_that_fit() -> None:
    cost, machine = StepCost(), Machine()
    learn(cost, machine, [decode(count, context) for count in range(1, 9) for context in (100, 500, 900)])
    each = machine.decode_token + 300 * machine.decode_context
    assert cost.decode_tokens_within(10.5 * each, 300.0) == 10


def test_decoding_for_an_hour_does_not_erase_what_a_prompt_costs() -> None:
    cost, machine = StepCost(), Machine()
    prompt_alone(cost, machine)
    learn(cost, machine, [decode(8, 100 + number) for number in range(5_000)])
    load = StepLoad().with_prefill(2000, 100)
    assert cost.seconds(load) == pytest.approx(machine.seconds(load), rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_averaged(seed: int) -> None:
    cost, machine, rng = StepCost(), Machine(), random.Random(seed)
    prompt_alone(cost, machine, 0.2, rng)
    learn(cost, machine, [decode(8, 300)] * 60, 0.2, rng)
    learn(cost, machine, mixed(rng, 60), 0.2, rng)
    for load in (decode(8, 300), decode(8, 300).with_prefill(1000, 64)):
        assert cost.seconds(load) == pytest.approx(machine.seconds(load), rel=0.25)


def test_one_hiccup_changes_little() -> None:
    cost, machine = StepCost(), Machine()
    learn(cost, machine, [decode(8, 300)] * 40)
    cost.learn(decode(8, 300), 1000.0)
    learn(cost, machine, [decode(8, 300)] * 7)
    assert cost.seconds(decode(8, 300)) == pytest.approx(machine.seconds(decode(8, 300)), rel=0.05)


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_machine_that_changes_is_followed(factor: float) -> None:
    cost, before = StepCost(), Machine()
    after = Machine(*(factor * value for value in (0.01, 0.002, 1e-6, 0.0013, 7e-7)))
    learn(cost, before, [decode(8, 300)] * 100)
    learn(cost, after, [decode(8, 300)] * 300)
    assert cost.seconds(decode(8, 300)) == pytest.approx(after.seconds(decode(8, 300)), rel=0.1)


@settings(max_examples=100, deadline=None)
@hypothesis.given(
    st.lists(
        st.tuples(
            st.builds(StepLoad, *[st.integers(0, limit) for limit in (64, 10**6, 4096, 10**8)]),
            st.one_of(st.floats(allow_nan=True), st.floats(1e-6, 1e4)),
        ),
        max_size=40,
    ),
    st.integers(0, 100_000),
    st.floats(0, 100),
)
def test_whatever_it_sees_estimates_are_finite_and_more_work_never_takes_less(
    steps: list[tuple[StepLoad, float]], start: int, seconds: float
) -> None:
    cost = StepCost()
    for load, taken in steps:
        cost.learn(load, taken)
    load = StepLoad(3, 500)
    assert 0.0 <= cost.seconds(StepLoad()) <= cost.seconds(load) <= cost.seconds(load.with_prefill(start, 5)) < math.inf
    assert cost.prefill_tokens_within(seconds, start + 1) <= cost.prefill_tokens_within(seconds, start)
    assert cost.prefill_tokens_within(seconds, start) <= cost.prefill_tokens_within(2 * seconds, start)
