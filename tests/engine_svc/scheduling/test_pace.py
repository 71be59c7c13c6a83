from __future__ import annotations

import random
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from engine_svc.output import Sampled
from engine_svc.scheduling.pace import AUTO_MULTIPLE, Pace
from engine_svc.scheduling.scheduler import Scheduler
from engine_svc.scheduling.sequence import Sequence, choices_of
from engine_svc.scheduling.speculation import Speculation
from engine_svc.scheduling.step import Plan
from engine_svc.scheduling.step_cost import StepLoad, load_of
from tests.engine_svc import given
from tests.engine_svc.scheduling.test_step_cost import Machine

BLOCK = 16
NEVER = 1_000_000


@dataclass
class Timed:
    """A scheduler on a machine that takes a known time for each step."""

    max_seconds: float | None = None
    machine: Machine = field(default_factory=Machine)
    noise: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    speculation: Speculation | None = None
    num_blocks: int = 2048
    max_num_seqs: int = 64
    scheduler: Scheduler = field(init=False)
    num_added: int = 0

    def __post_init__(self) -> None:
        self.scheduler = given.scheduler(
            self.num_blocks, BLOCK, max_num_seqs=self.max_num_seqs, max_num_batched_tokens=512, chunk=512,
            caching=False, speculation=self.speculation, pace=Pace(self.max_seconds, BLOCK),
        )  # fmt: skip

    def add(self, prompt: int | list[int], max_tokens: int = 1, n: int = 1) -> Sequence:
        sequences = choices_of(given.request(prompt, max_tokens, n=n), 100 * self.num_added)
        self.num_added += 1
        self.scheduler.add(sequences)
        return sequences[0]

    def step(self) -> tuple[Plan, float]:
        """The plan of a step, and its time."""
        plan = self.scheduler.schedule(0.0)
        seconds = self.machine.seconds(load_of(plan.batch))
        if self.noise:
            seconds *= self.rng.lognormvariate(0.0, self.noise)
        tokens = [(7, *[7 for _ in entry.drafts]) for entry in plan.batch]
        results = (Sampled(new) if e.samples else None for e, new in zip(plan.batch, tokens, strict=True))
        self.scheduler.apply(plan.batch, [*results])
        self.scheduler.learn(plan, seconds)
        self.scheduler.check_integrity()
        return plan, seconds

    def steps(self, count: int) -> list[tuple[Plan, float]]:
        return [self.step() for _ in range(count)]

    def until_done(self, *sequences: Sequence) -> list[tuple[Plan, float]]:
        done: list[tuple[Plan, float]] = []
        while any(sequence.finish_reason is None for sequence in sequences):
            done.append(self.step())
            assert len(done) < 5_000, "no progress"
        return done

    def decode(self, num_streams: int, prompt: int = 64) -> float:
        """Start streams, run them for a while, and return the time of a step."""
        for _ in range(num_streams):
            self.add(prompt, NEVER)
        return statistics.median(seconds for _, seconds in self.steps(40)[20:])


def sizes(steps: Iterable[tuple[Plan, float]], sequence: Sequence) -> list[int]:
    """Tokens of a sequence in each step with it."""
    return [entry.num_tokens for plan, _ in steps for entry in plan.batch if entry.sequence is sequence]


def seconds(steps: Iterable[tuple[Plan, float]]) -> list[float]:
    return [taken for _, taken in steps]


def num_prefill_tokens(plan: Plan) -> int:
    return load_of(plan.batch).prefill_tokens


@pytest.mark.parametrize("max_seconds", [None, 0.001])
@pytest.mark.parametrize("n", [1, 3])
def test_a_prompt_alone_gets_the_whole_token_budget(max_seconds: float | None, n: int) -> None:
    timed = Timed(max_seconds)
    for _ in range(2):
        prompt = timed.add(1500, max_tokens=3, n=n)
        steps = timed.until_done(*(prompt.siblings or [prompt]))
        assert sizes(steps, prompt) == [512, 512, 476, 1, 1]


def test_two_prompts_share_the_token_budget() -> None:
    timed = Timed()
    first, second = timed.add(700), timed.add(300)
    steps = timed.until_done(first, second)
    assert sizes(steps[:2], first) == [256, 256]
    assert sizes(steps, second) == [256, 44]


@pytest.mark.parametrize("max_seconds", [0.1, 0.2, 0.4])
def test_with_streams_steps_take_the_given_time(max_seconds: float) -> None:
    timed = Timed(max_seconds)
    timed.until_done(timed.add(4000))
    timed.decode(8)
    prompt = timed.add(4000)
    steps = timed.until_done(prompt)
    assert max(seconds(steps)) <= 1.1 * max_seconds
    assert min(seconds(steps)[3:-1]) >= 0.9 * max_seconds
    chunks = sizes(steps, prompt)
    assert chunks[-2] < chunks[1], "attention costs more at the end"


@pytest.mark.parametrize("speed", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("num_streams", [1, 8, 30])
def test_by_default_streams_and_prompt_each_get_their_part_on_any_machine(speed: float, num_streams: int) -> None:
    machine = Machine(*(speed * value for value in (0.01, 0.002, 1e-6, 0.0013, 7e-7)))
    timed = Timed(machine=machine)
    alone = sum(seconds(timed.until_done(timed.add(4000))))
    undisturbed = timed.decode(num_streams)
    steps = seconds(timed.until_done(timed.add(4000)))
    longest = max(AUTO_MULTIPLE * undisturbed, machine.seconds(StepLoad(num_streams).with_prefill(4000, BLOCK)))
    assert max(steps) <= 1.2 * longest
    assert max(steps) <= 1.4 * statistics.median(steps)
    assert sum(steps) <= 1.3 * alone


@pytest.mark.parametrize("seed", range(4))
def test_noise_does_not_starve_the_prompt_or_the_streams(seed: int) -> None:
    timed = Timed(noise=0.2, rng=random.Random(seed))
    alone = sum(seconds(timed.until_done(timed.add(4000))))
    undisturbed = timed.decode(8)
    steps = seconds(timed.until_done(timed.add(4000)))
    assert statistics.median(steps) <= 1.3 * AUTO_MULTIPLE * undisturbed
    assert sum(steps) <= 1.5 * alone


def test_the_bound_is_on_the_step_whatever_the_number_of_prompts() -> None:
    timed = Timed(0.1)
    timed.until_done(timed.add(2000))
    timed.decode(8)
    short = [timed.add(50) for _ in range(30)]
    steps = timed.until_done(*short)
    assert max(seconds(steps)) <= 1.1 * 0.1
    assert len(steps) < 40, "several prompts fit into a step"


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    timed = Timed()
    timed.until_done(timed.add(4000))
    timed.decode(8)
    long = timed.add(4000)
    timed.steps(3)
    short = timed.add(60)
    assert len(timed.until_done(short)) <= 3
    assert long.finish_reason is None


def test_a_bound_that_decoding_alone_exceeds_leaves_a_block_of_prefill() -> None:
    timed = Timed(0.0001)
    timed.decode(8)
    prompts = [timed.add(64), timed.add(40)]
    steps = timed.until_done(*prompts)
    assert [num_prefill_tokens(plan) for plan, _ in steps if num_prefill_tokens(plan)] == [16, 16, 16, 16, 16, 16, 8]
    assert sizes(steps, prompts[0]) == [16] * 4


def test_running_prompts_progress_in_every_step() -> None:
    timed = Timed(0.0001)
    stream, first, second = timed.add(300, NEVER), timed.add(2000), timed.add(2000)
    timed.steps(2)  # until then nobody decodes, so all three have started
    for step in timed.steps(30):
        assert [sizes([step], sequence) for sequence in (stream, first, second)] == [[1], [BLOCK], [1]]


def test_far_larger_chunks_than_ever_seen_are_approached_in_steps() -> None:
    timed = Timed(10.0)
    timed.add(2, NEVER)
    timed.steps(3)
    prompt = timed.add(600)
    assert sizes(timed.until_done(prompt), prompt)[:4] == [16, 32, 64, 128]


def test_draft_tokens_fit_the_bound() -> None:
    machine = Machine(decode_token=0.01)
    repetitive = [1, 2, 3] * 20
    most = []
    for bound in (None, 0.1):
        timed = Timed(bound, machine=machine, speculation=Speculation(8, 32))
        for _ in range(4):
            timed.add(repetitive, NEVER)
        steps = timed.steps(60)[30:]
        most.append(max(plan.num_tokens for plan, _ in steps))
        if bound is not None:
            assert max(seconds(steps)) <= 1.1 * bound
    assert most[1] < most[0]


@settings(max_examples=30, deadline=None)
@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 400), st.integers(1, 12), st.integers(1, 3)), max_size=14),
    st.sampled_from([None, 0.0001, 0.02, 0.1, 10.0]),
    st.integers(30, 120),
    st.integers(2, 6),
    st.integers(0, 2**32),
)
def test_every_request_finishes_under_any_bound(
    arrivals: list[tuple[int, int, int, int]], bound: float | None, num_blocks: int, max_num_seqs: int, seed: int
) -> None:
    timed = Timed(
        bound, noise=0.3, rng=random.Random(seed), num_blocks=num_blocks, max_num_seqs=max_num_seqs,
        speculation=Speculation(4, 32),
    )  # fmt: skip
    added = []
    for wait, prompt, max_tokens, n in arrivals:
        timed.steps(wait)
        added.append(timed.add(prompt, max_tokens, n))
    steps = timed.until_done(*(sibling for sequence in added for sibling in sequence.siblings or (sequence,)))
    for plan, _ in steps:
        assert plan.batch, "a step without progress"
    assert timed.scheduler.num_free_blocks == num_blocks
