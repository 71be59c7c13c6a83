from __future__ import annotations

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from engine_svc.output import ChoiceOutput, Sampled, TokenLogprobs
from engine_svc.request import Request
from engine_svc.scheduling.scheduler import Scheduler
from engine_svc.scheduling.sequence import Sequence, Status, choices_of
from engine_svc.scheduling.step import Outcome, Plan
from tests.engine_svc import given

TOKEN = 7


def add(scheduler: Scheduler, request: Request, first_id: int) -> tuple[Sequence, ...]:
    sequences = choices_of(request, first_id)
    scheduler.add(sequences)
    return sequences


def add_one(scheduler: Scheduler, prompt: int, first_id: int, max_tokens: int = 100) -> Sequence:
    return add(scheduler, given.request(prompt, max_tokens), first_id)[0]


def step(scheduler: Scheduler, *tokens: int, now: float = 0.0) -> tuple[Plan, list[Outcome]]:
    """One step in which every sampling sequence gets these tokens, by default one."""
    plan = scheduler.schedule(now)
    sampled = Sampled(tokens or (TOKEN,))
    outcomes = scheduler.apply(plan.batch, [sampled if entry.samples else None for entry in plan.batch])
    scheduler.check_integrity()
    return plan, outcomes


def shape(plan: Plan) -> list[tuple[int, int, int]]:
    """Sequence number, start and length of each entry."""
    return [(entry.sequence.seq_id, entry.start, entry.num_tokens) for entry in plan.batch]


def test_nothing_to_do() -> None:
    scheduler = given.scheduler()
    assert scheduler.schedule(0.0).batch == []
    assert scheduler.next_due() is None


def test_a_prompt_then_one_token_a_step() -> None:
    scheduler = given.scheduler()
    sequence = add_one(scheduler, 5, 1, max_tokens=3)
    plans = [step(scheduler) for _ in range(3)]
    assert [shape(plan) for plan, _ in plans] == [[(1, 0, 5)], [(1, 5, 1)], [(1, 6, 1)]]
    assert [outcomes[0][1] for _, outcomes in plans] == [
        ChoiceOutput(0, (TOKEN,)),
        ChoiceOutput(0, (TOKEN,)),
        ChoiceOutput(0, (TOKEN,), finish_reason="length"),
    ]
    assert sequence.status is Status.FINISHED
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.num_free_blocks) == (0, 0, 64)


def test_prompts_are_chunked_and_sample_at_their_end_only() -> None:
    scheduler = given.scheduler(chunk=4)
    add_one(scheduler, 10, 1)
    steps = [step(scheduler) for _ in range(3)]
    assert [shape(plan) for plan, _ in steps] == [[(1, 0, 4)], [(1, 4, 4)], [(1, 8, 2)]]
    assert [len(outcomes) for _, outcomes in steps] == [0, 0, 1]


def test_prefill_and_decode_share_a_step() -> None:
    scheduler = given.scheduler(max_num_batched_tokens=8)
    add_one(scheduler, 3, 1)
    step(scheduler)
    add_one(scheduler, 20, 2)
    plan, _ = step(scheduler)
    assert shape(plan) == [(1, 3, 1), (2, 0, 7)]
    assert plan.num_tokens == 8


def test_a_step_holds_no_more_than_its_limits() -> None:
    scheduler = given.scheduler(max_num_seqs=3, max_num_batched_tokens=10)
    for number in range(5):
        add_one(scheduler, 4, number)
    plan, _ = step(scheduler)
    assert shape(plan) == [(0, 0, 4), (1, 0, 4), (2, 0, 2)]
    plan, _ = step(scheduler)
    assert shape(plan) == [(0, 4, 1), (1, 4, 1), (2, 2, 2)]
    assert (scheduler.num_running, scheduler.num_waiting) == (3, 2)


def test_a_long_prompt_leaves_no_running_sequence_out() -> None:
    scheduler = given.scheduler(num_blocks=100, max_num_seqs=3, max_num_batched_tokens=8, chunk=6)
    for number, prompt in ((1, 200), (2, 1), (3, 1)):
        add_one(scheduler, prompt, number)
    step(scheduler)
    for _ in range(20):
        plan, _ = step(scheduler)
        assert [(entry.sequence.seq_id, entry.num_tokens) for entry in plan.batch] == [(1, 6), (2, 1), (3, 1)]


def test_older_sequences_get_more_but_each_gets_a_token() -> None:
    scheduler = given.scheduler(max_num_seqs=3, max_num_batched_tokens=12, chunk=8)
    for number in (1, 2, 3):
        add_one(scheduler, 1, number)
    step(scheduler, *[TOKEN] * 10)
    plan, _ = step(scheduler)
    assert shape(plan) == [(1, 1, 6), (2, 1, 5), (3, 1, 1)]


def test_several_tokens_of_a_step_are_computed_in_the_next() -> None:
    scheduler = given.scheduler(chunk=4)
    sequence = add_one(scheduler, 3, 1)
    step(scheduler, 10, 11, 12, 13, 14)
    plan, outcomes = step(scheduler)
    assert (shape(plan), outcomes) == ([(1, 3, 4)], [])
    plan, _ = step(scheduler)
    assert shape(plan) == [(1, 7, 1)]
    assert sequence.token_ids[3:] == [10, 11, 12, 13, 14, TOKEN]


def test_tokens_after_the_end_are_cut() -> None:
    scheduler = given.scheduler()
    sequence = add_one(scheduler, 3, 1, max_tokens=2)
    _, outcomes = step(scheduler, 10, 11, 12)
    assert outcomes == [(sequence, ChoiceOutput(0, (10, 11), finish_reason="length"))]
    assert sequence.token_ids == [1, 2, 3, 10, 11]


def test_log_probabilities_after_the_end_are_cut() -> None:
    scheduler = given.scheduler()
    sequence = add_one(scheduler, 3, 1, max_tokens=2)
    logprobs = tuple(TokenLogprobs(-float(rank)) for rank in range(3))
    plan = scheduler.schedule(0.0)
    outcomes = scheduler.apply(plan.batch, [Sampled((10, 11, 12), logprobs)])
    assert outcomes == [(sequence, ChoiceOutput(0, (10, 11), logprobs[:2], "length"))]


def test_an_end_token_is_part_of_the_output_and_named() -> None:
    scheduler = given.scheduler()
    sequence = add_one(scheduler, 3, 1)
    _, outcomes = step(scheduler, 10, given.EOS, 12)
    assert outcomes == [(sequence, ChoiceOutput(0, (10, given.EOS), (), "stop", given.EOS))]


def test_a_sequence_without_a_new_token_is_scheduled_again() -> None:
    scheduler = given.scheduler(block_size=4)
    sequence = add_one(scheduler, 4, 1)
    plan = scheduler.schedule(0.0)
    assert scheduler.apply(plan.batch, [Sampled(())]) == []
    scheduler.check_integrity()
    plan = scheduler.schedule(0.0)
    assert shape(plan) == [(1, 3, 1)]
    assert scheduler.apply(plan.batch, [Sampled((TOKEN,))]) == [(sequence, ChoiceOutput(0, (TOKEN,)))]
    assert shape(scheduler.schedule(0.0)) == [(1, 4, 1)]


def test_a_sequence_that_is_not_due_waits_alone() -> None:
    scheduler = given.scheduler()
    add_one(scheduler, 3, 1)
    plan = scheduler.schedule(0.0)
    scheduler.apply(plan.batch, [Sampled((TOKEN,), resume_at=5.0)])
    assert scheduler.next_due() == 5.0
    add_one(scheduler, 2, 2)
    assert shape(step(scheduler, now=4.9)[0]) == [(2, 0, 2)]
    assert shape(step(scheduler, now=4.95)[0]) == [(2, 2, 1)]
    assert shape(step(scheduler, now=5.0)[0]) == [(1, 3, 1), (2, 3, 1)]


def test_the_youngest_is_preempted_and_is_next() -> None:
    scheduler = given.scheduler(num_blocks=4, block_size=4, caching=False)
    old, young = add_one(scheduler, 7, 1), add_one(scheduler, 4, 2)
    step(scheduler)  # 2 blocks and 1
    newcomer = add_one(scheduler, 1, 3)
    step(scheduler)
    plan, _ = step(scheduler)
    assert plan.preempted == [young]
    assert shape(plan) == [(1, 8, 1)]
    assert (young.status, young.block_table, young.num_computed_tokens) == (Status.WAITING, [], 0)
    assert young.num_preemptions == 1
    assert young.num_output_tokens == 2
    assert newcomer.status is Status.WAITING
    assert old.num_preemptions == 0
    scheduler.end(old)
    assert [entry.sequence for entry in step(scheduler)[0].batch] == [young, newcomer]


def test_a_preempted_sequence_continues_where_it_was() -> None:
    scheduler = given.scheduler(num_blocks=4, block_size=4, caching=False)
    old, young = add_one(scheduler, 7, 1, max_tokens=6), add_one(scheduler, 4, 2, max_tokens=4)
    while old.status is not Status.FINISHED:
        step(scheduler)
    kept = young.num_tokens
    plan, _ = step(scheduler)
    assert shape(plan) == [(2, 0, kept)]
    while young.status is not Status.FINISHED:
        step(scheduler)
    assert young.token_ids[4:] == [TOKEN] * 4
    assert scheduler.num_free_blocks == 4


def test_a_preempted_sequence_reads_the_cache_for_its_own_output() -> None:
    scheduler = given.scheduler(num_blocks=4, block_size=2)
    old, young = add(scheduler, given.request([1, 2], 100), 1)[0], add(scheduler, given.request([8, 9], 100), 2)[0]
    while not young.num_preemptions:
        step(scheduler)
    scheduler.end(old)
    plan, _ = step(scheduler)
    assert [entry.sequence for entry in plan.batch] == [young]
    assert plan.batch[0].start > 0


def test_preemption_takes_the_blocks_of_those_not_due_as_well() -> None:
    scheduler = given.scheduler(num_blocks=4, block_size=4, caching=False)
    old, sleeper = add_one(scheduler, 7, 1), add_one(scheduler, 4, 2)
    plan = scheduler.schedule(0.0)
    scheduler.apply(plan.batch, [Sampled((TOKEN,)), Sampled((TOKEN,), resume_at=99.0)])
    while old.num_tokens <= 13:
        assert sleeper.status is Status.RUNNING
        step(scheduler)
    assert (sleeper.status, sleeper.resume_at, old.num_preemptions) == (Status.WAITING, 0.0, 0)


def test_a_sequence_starts_only_with_room_for_the_running_to_grow() -> None:
    scheduler = given.scheduler(num_blocks=4, block_size=4)
    add_one(scheduler, 8, 1)
    add_one(scheduler, 5, 2)
    assert [entry.sequence.seq_id for entry in step(scheduler)[0].batch] == [1]
    scheduler = given.scheduler(num_blocks=5, block_size=4)
    add_one(scheduler, 8, 1)
    add_one(scheduler, 5, 2)
    assert [entry.sequence.seq_id for entry in step(scheduler)[0].batch] == [1, 2]


def test_later_requests_do_not_overtake_one_that_waits_for_blocks() -> None:
    scheduler = given.scheduler(num_blocks=4, block_size=4)
    add_one(scheduler, 8, 1)
    add_one(scheduler, 12, 2)
    add_one(scheduler, 1, 3)
    assert [entry.sequence.seq_id for entry in step(scheduler)[0].batch] == [1]


@pytest.mark.parametrize("caching", [True, False])
def test_choices_wait_for_the_first_and_share_its_prompt(caching: bool) -> None:
    scheduler = given.scheduler(num_blocks=64, block_size=4, chunk=8, caching=caching)
    sequences = add(scheduler, given.request(18, 100, n=3), 1)
    assert shape(step(scheduler)[0]) == [(1, 0, 8)]
    assert shape(step(scheduler)[0]) == [(1, 8, 8)]
    assert shape(step(scheduler)[0]) == [(1, 16, 2), (2, 16, 2), (3, 16, 2)]
    tables = [sequence.block_table for sequence in sequences]
    assert tables[0][:4] == tables[1][:4] == tables[2][:4]
    assert len({table[4] for table in tables}) == 3
    assert scheduler.num_free_blocks == 64 - 4 - 3


def test_choices_with_nothing_to_share_start_at_once() -> None:
    scheduler = given.scheduler(block_size=4)
    add(scheduler, given.request(4, 100, n=3), 1)
    assert shape(step(scheduler)[0]) == [(1, 0, 4), (2, 0, 4), (3, 0, 4)]


def test_waiting_choices_do_not_block_other_requests() -> None:
    scheduler = given.scheduler(block_size=4, chunk=4)
    add(scheduler, given.request(12, 100, n=2), 1)
    add_one(scheduler, 2, 3)
    assert [entry.sequence.seq_id for entry in step(scheduler)[0].batch] == [1, 3]


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("when", ["waiting", "prefilling", "decoding"])
def test_when_the_first_choice_ends_another_computes_the_prompt(caching: bool, when: str) -> None:
    scheduler = given.scheduler(block_size=4, chunk=4, max_num_seqs=1, caching=caching)
    leader, second, third = add(scheduler, given.request(11, 2, n=3), 1)
    for _ in range({"waiting": 0, "prefilling": 1, "decoding": 3}[when]):
        step(scheduler)
    assert scheduler.end(leader)
    scheduler.check_integrity()
    for _ in range(20):
        step(scheduler)
    assert second.finish_reason == third.finish_reason == "length"
    assert scheduler.num_free_blocks == 64


@pytest.mark.parametrize("caching", [True, False])
def test_choices_of_one_token(caching: bool) -> None:
    """The first choice is over in the step that computes the prompt, before any other could share it."""
    scheduler = given.scheduler(block_size=4, caching=caching)
    sequences = add(scheduler, given.request(11, 1, n=4), 1)
    for _ in range(4):
        step(scheduler)
    assert all(sequence.finish_reason == "length" for sequence in sequences)
    assert scheduler.num_free_blocks == 64


def test_more_choices_than_max_num_seqs_take_turns() -> None:
    scheduler = given.scheduler(block_size=4, max_num_seqs=2)
    sequences = add(scheduler, given.request(9, 3, n=7), 1)
    for _ in range(20):
        step(scheduler)
        assert scheduler.num_running <= 2
    assert all(sequence.finish_reason == "length" for sequence in sequences)


def test_a_preempted_first_choice_does_not_block_the_others() -> None:
    scheduler = given.scheduler(num_blocks=6, block_size=2, chunk=2)
    add_one(scheduler, 4, 0, max_tokens=6)
    sequences = add(scheduler, given.request([9] * 5, 4, n=3), 1)
    for _ in range(60):
        step(scheduler)
    assert all(sequence.finish_reason == "length" for sequence in sequences)
    assert scheduler.num_free_blocks == 6


def test_a_fault_is_returned_and_caches_nothing() -> None:
    scheduler = given.scheduler(block_size=4)
    bad, good = add_one(scheduler, 9, 1), add_one(scheduler, 3, 2)
    fault = RuntimeError("no")
    plan = scheduler.schedule(0.0)
    assert scheduler.apply(plan.batch, [fault, Sampled((TOKEN,))]) == [(bad, fault), (good, ChoiceOutput(0, (TOKEN,)))]
    scheduler.end(bad)
    scheduler.check_integrity()
    again = add_one(scheduler, 9, 3)
    step(scheduler)
    assert again.num_cached_tokens == 0


def test_cached_tokens_are_those_of_the_first_start() -> None:
    scheduler = given.scheduler(num_blocks=6, block_size=2)
    first = add_one(scheduler, 5, 1)
    step(scheduler)
    second = add_one(scheduler, 5, 2)
    while not second.num_preemptions:
        step(scheduler)
    scheduler.end(first)
    step(scheduler)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 4)
    assert second.num_computed_tokens > 4


def test_ending_is_legal_in_every_state_and_once() -> None:
    scheduler = given.scheduler(num_blocks=4, block_size=4, max_num_seqs=2)
    running, waiting = add_one(scheduler, 4, 1), add_one(scheduler, 16, 2)
    step(scheduler)
    for sequence in (running, waiting):
        assert scheduler.end(sequence)
        scheduler.check_integrity()
        assert not scheduler.end(sequence)
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.num_free_blocks) == (0, 0, 4)


def test_a_request_with_many_choices_does_not_delay_the_next() -> None:
    scheduler = given.scheduler(max_num_seqs=4)
    many = add(scheduler, given.request(4, 100, n=32), 1)
    step(scheduler)
    single = add_one(scheduler, 3, 100, max_tokens=2)
    step(scheduler)
    plan, _ = step(scheduler)
    assert (plan.preempted, plan.admitted) == ([many[3]], [single])
    step(scheduler)
    assert single.status is Status.FINISHED
    assert many[3] in step(scheduler)[0].admitted


def test_only_a_request_with_another_running_choice_is_preempted() -> None:
    scheduler = given.scheduler(max_num_seqs=2)
    add(scheduler, given.request(4, 100, n=1), 1)
    add(scheduler, given.request(4, 100, n=1), 2)
    waiting = add_one(scheduler, 3, 3)
    for _ in range(5):
        assert step(scheduler)[0].preempted == []
    assert waiting.status is Status.WAITING


def test_blocks_are_freed_for_a_blocked_request_too() -> None:
    scheduler = given.scheduler(num_blocks=8, block_size=4, max_num_seqs=8, caching=False)
    add(scheduler, given.request(4, 26, n=4), 1)
    for _ in range(3):
        step(scheduler)
    single = add_one(scheduler, 6, 100, max_tokens=3)
    for _ in range(6):
        step(scheduler)
    assert single.status is Status.FINISHED


def test_the_first_choice_of_every_request_is_preempted_last() -> None:
    scheduler = given.scheduler(num_blocks=8, block_size=4, caching=False)
    old = add(scheduler, given.request(4, 26, n=3), 1)
    young = add_one(scheduler, 4, 10, max_tokens=12)
    while young.status is not Status.FINISHED:
        step(scheduler)
        assert young.num_preemptions == 0
    assert [sequence.num_preemptions for sequence in old] == [0, 1, 1]


@settings(max_examples=60)
@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12), st.integers(1, 6)), min_size=1, max_size=12),
    st.integers(2, 6),
    st.integers(8, 20),
)
def test_every_admitted_request_finishes(
    arrivals: list[tuple[int, int, int]], max_num_seqs: int, num_blocks: int
) -> None:
    scheduler = given.scheduler(num_blocks=num_blocks, block_size=4, max_num_seqs=max_num_seqs)
    requests: list[tuple[Sequence, ...]] = []
    for number, (wait, n, max_tokens) in enumerate(arrivals):
        for _ in range(wait):
            step(scheduler)
        requests.append(add(scheduler, given.request(5, max_tokens, n=n), number * 100))
    for _ in range(2_000):
        if not (scheduler.num_running or scheduler.num_waiting):
            break
        step(scheduler)
    assert all(sequence.finish_reason == "length" for request in requests for sequence in request)


@settings(max_examples=60)
@hypothesis.given(st.integers(1, 4), st.integers(2, 40), st.integers(3, 8))
def test_a_short_request_among_floods_takes_a_few_steps(num_floods: int, n: int, max_num_seqs: int) -> None:
    """However many choices others have waiting: one step to find it blocked, one to preempt for it."""
    scheduler = given.scheduler(num_blocks=200, max_num_seqs=max_num_seqs)
    for number in range(min(num_floods, max_num_seqs - 1)):
        add(scheduler, given.request(4, 10_000, n=n), number * 100)
    for _ in range(5):
        step(scheduler)
    single = add_one(scheduler, 4, 10_000, max_tokens=2)
    for _ in range(4):
        step(scheduler)
    assert single.finish_reason == "length"
