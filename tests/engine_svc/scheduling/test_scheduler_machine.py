"""Random operations on scheduler and blocks: every operation keeps their integrity, every output is right.

The model (``paged_model.py``) computes each token from what the blocks really hold, so a block that is shared too
early, taken too soon or found under a wrong name shows as a wrong token. With speculation it has three words, so that
draft tokens are accepted now and then.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine_svc.request import Request
from engine_svc.scheduling.capacity import Capacity
from engine_svc.scheduling.speculation import Speculation
from svclib.errors import InvalidRequest
from tests.engine_svc import given
from tests.engine_svc.given import Running
from tests.engine_svc.paged_model import VOCAB_SIZE, PagedModel, expected_output

PREFIXES = ([1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 9, 9, 9], [8])


class Fuzz:
    """A small engine, and the expected output of every request in it."""

    def __init__(
        self, num_blocks: int, block_size: int, *, chunk: int, caching: bool, per_step: int, num_drafts: int = 0
    ) -> None:
        self.num_ids = 3 if num_drafts else VOCAB_SIZE - 1
        model = PagedModel(num_blocks, block_size, per_step=per_step, num_ids=self.num_ids, max_model_len=64)
        scheduler = given.scheduler(
            num_blocks, block_size, max_num_seqs=5, max_num_batched_tokens=12, chunk=chunk, caching=caching,
            speculation=Speculation(num_drafts, 12) if num_drafts else None,
        )  # fmt: skip
        self.num_blocks = num_blocks
        self.running = Running(model, scheduler)
        self.capacity = Capacity(64, block_size, num_blocks)
        self.requests: dict[int, Request] = {}
        self.stopped: set[tuple[int, int]] = set()

    def add(self, prompt: list[int], max_tokens: int, n: int) -> None:
        try:
            self.capacity.max_tokens(len(prompt), max_tokens)
        except InvalidRequest:
            return
        request = given.request(prompt, max_tokens, n=n)
        self.requests[self.running.add(request)] = request

    @property
    def live(self) -> list[int]:
        return [number for number in self.requests if not self.running.answers[number].is_over]

    def abort(self, number: int) -> None:
        self.running.abort(number)
        del self.requests[number]

    def stop(self, number: int, chance: random.Random) -> None:
        index = chance.randrange(self.requests[number].sampling_params.n)
        if index not in self.running.answers[number].finish_reasons:
            self.stopped.add((number, index))
        self.running.stop_choice(number, index)

    def finish(self) -> None:
        """Every request finishes with its expected tokens, and no block is leaked."""
        self.running.run()
        assert self.live == []
        for number, request in self.requests.items():
            assert self.running.answers[number].error is None
            for index in range(request.sampling_params.n):
                self._check(number, request, index)
        assert self.running.scheduler.num_free_blocks == self.num_blocks
        assert (self.running.scheduler.num_running, self.running.scheduler.num_waiting) == (0, 0)

    def _check(self, number: int, request: Request, index: int) -> None:
        answer = self.running.answers[number]
        token_ids = answer.token_ids.get(index, [])
        assert token_ids == expected_output(request.prompt_token_ids, index, len(token_ids), self.num_ids)
        if (number, index) in self.stopped:
            assert index not in answer.finish_reasons
        else:
            assert answer.finish_reasons[index] == "length"
            assert len(token_ids) == request.sampling_params.max_tokens


@pytest.mark.parametrize(
    ("block_size", "chunk", "caching", "per_step", "num_drafts"),
    [
        (2, 12, True, 1, 0),
        (4, 3, True, 2, 0),
        (2, 5, False, 1, 0),
        (3, 12, True, 3, 0),
        (1, 2, True, 1, 0),
        (2, 12, True, 1, 5),
        (1, 3, False, 1, 2),
        (3, 12, True, 2, 8),
    ],
)
def test_ten_thousand_steps_in_a_tiny_pool(
    block_size: int, chunk: int, caching: bool, per_step: int, num_drafts: int
) -> None:
    """2,500 random operations for each of eight engines."""
    chance = random.Random(block_size * chunk)
    fuzz = Fuzz(
        30 // block_size, block_size, chunk=chunk, caching=caching, per_step=per_step, num_drafts=num_drafts
    )  # fmt: skip
    for _ in range(2_500):
        live = fuzz.live
        match chance.choices(["step", "add", "abort", "stop"], [10, 3, 1, 1])[0]:
            case "add" if len(live) < 12:
                prompt = chance.choice(PREFIXES) + [chance.randrange(1, 4) for _ in range(chance.randrange(6))]
                fuzz.add(prompt, chance.randrange(1, 16), chance.choice([1, 1, 1, 2, 4]))
            case "abort" if live:
                fuzz.abort(chance.choice(live))
            case "stop" if live:
                fuzz.stop(chance.choice(live), chance)
            case _:
                fuzz.running.step()
    preempted = fuzz.running.sample("vllm:num_preemptions_total")
    fuzz.finish()
    assert preempted > 20, "the pool was too large for this test to mean much"
    num_drafted, num_accepted = (
        fuzz.running.sample(f"vllm:spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted")
    )
    assert (0 < num_accepted < num_drafted) == (num_drafts > 0)


class SchedulerMachine(RuleBasedStateMachine):
    num_drafts = 0

    def __init__(self) -> None:
        super().__init__()
        self.fuzz = Fuzz(8, 3, chunk=4, caching=True, per_step=1, num_drafts=self.num_drafts)

    @rule(
        prefix=st.sampled_from(PREFIXES),
        rest=st.lists(st.integers(1, 3), max_size=5),
        max_tokens=st.integers(1, 14),
        n=st.sampled_from([1, 1, 2, 3]),
    )
    def add(self, prefix: list[int], rest: list[int], max_tokens: int, n: int) -> None:
        self.fuzz.add(prefix + rest, max_tokens, n)

    @rule(times=st.integers(1, 5))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.fuzz.running.step()

    @precondition(lambda self: self.fuzz.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.fuzz.abort(data.draw(st.sampled_from(self.fuzz.live)))

    @precondition(lambda self: self.fuzz.live)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        self.fuzz.stop(data.draw(st.sampled_from(self.fuzz.live)), data.draw(st.randoms(use_true_random=False)))

    @invariant()
    def books_are_right(self) -> None:
        self.fuzz.running.scheduler.check_integrity()

    def teardown(self) -> None:
        self.fuzz.finish()


class SpeculatingMachine(SchedulerMachine):
    num_drafts = 4


TestSchedulerMachine = SchedulerMachine.TestCase
TestSpeculatingMachine = SpeculatingMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=40)
TestSpeculatingMachine.settings = TestSchedulerMachine.settings
