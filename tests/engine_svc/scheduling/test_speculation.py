from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import pytest

from engine_svc.constraint import Constraint
from engine_svc.output import Sampled
from engine_svc.request import Request
from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.scheduler import Scheduler
from engine_svc.scheduling.sequence import Sequence, Status, choices_of
from engine_svc.scheduling.speculation import FREE_TOKENS, Speculation
from engine_svc.scheduling.step import Plan, ScheduledSequence
from tests.engine_svc import given

LOOP = [1, 2, 3] * 400
NOVEL = [token for number in range(400) for token in (7, 100 + number)]
"""A draft follows each 7, and is rejected each time."""


def scheduler(
    num_blocks: int = 200, *, drafts: int = 4, max_step_tokens: int = 32, chunk: int = 64, max_num_seqs: int = 40
) -> Scheduler:
    return given.scheduler(
        num_blocks, 4, chunk=chunk, max_num_seqs=max_num_seqs, max_num_batched_tokens=1000,
        speculation=Speculation(drafts, max_step_tokens),
    )  # fmt: skip


def add(scheduler: Scheduler, request: Request, seq_id: int = 1) -> Sequence:
    (sequence,) = choices_of(request, seq_id)
    scheduler.add([sequence])
    return sequence


def step(scheduler: Scheduler, text: SequenceOf[int] = LOOP) -> Plan:
    """A step in which every sequence continues with the text, with drafts or without."""
    plan = scheduler.schedule(0.0)
    scheduler.apply(plan.batch, [sampled(entry, text) if entry.samples else None for entry in plan.batch])
    scheduler.check_integrity()
    return plan


def sampled(entry: ScheduledSequence, text: SequenceOf[int]) -> Sampled:
    token_ids: list[int] = []
    for expected in (*entry.drafts, None):
        token_ids.append(text[entry.sequence.num_tokens + len(token_ids)])
        if token_ids[-1] != expected:
            break
    return Sampled(tuple(token_ids))


def warm(scheduler: Scheduler, *sequences: Sequence) -> None:
    """Until the acceptance rate is high."""
    while any(sequence.num_output_tokens < 40 for sequence in sequences):
        step(scheduler)


def num_drafts(plan: Plan) -> list[int]:
    return [len(entry.drafts) for entry in plan.batch]


def test_decode_steps_have_drafts_and_prompts_do_not() -> None:
    speculative = scheduler(chunk=16)
    sequence = add(speculative, given.request(LOOP[:24], 90))

    plans = [step(speculative) for _ in range(4)]

    assert [num_drafts(plan) for plan in plans[:2]] == [[0], [0]]
    entry = plans[2].batch[0]
    assert (entry.start, entry.num_tokens, entry.drafts) == (24, 2, (2,))
    assert entry.token_ids == [1, 2]
    assert plans[2].num_tokens == 2
    assert plans[3].batch[0].start == 26, "the draft was right, so it is computed"
    assert sequence.token_ids == LOOP[: sequence.num_tokens]


def test_accepted_drafts_make_longer_drafts_up_to_the_limit() -> None:
    speculative = scheduler(drafts=6)
    add(speculative, given.request(LOOP[:24], 200))

    counts = [num_drafts(step(speculative))[0] for _ in range(14)]

    assert counts == sorted(counts)
    assert (counts[0], counts[1], counts[-1]) == (0, 1, 6)


def test_drafts_stop_when_rejected_and_resume_when_they_would_be_accepted() -> None:
    speculative = scheduler()
    add(speculative, given.request(NOVEL[:24], 500))

    novel = [sum(num_drafts(step(speculative, NOVEL))) for _ in range(150)]
    again = [sum(num_drafts(step(speculative, LOOP))) for _ in range(50)]

    assert 0 < sum(novel) <= 10
    assert sum(novel[-100:]) == 0
    assert again[-1] == 4


def test_rejected_drafts_leave_no_state() -> None:
    speculative = scheduler()
    sequence = add(speculative, given.request(LOOP[:24], 90))
    warm(speculative, sequence)
    before = sequence.num_tokens

    plan = step(speculative, [*LOOP[: before + 1], 77])

    assert (num_drafts(plan), sequence.token_ids) == ([4], [*LOOP[: before + 1], 77])
    assert sequence.num_computed_tokens == before + 1
    assert len(sequence.block_table) == -(-sequence.num_tokens // 4)


def test_only_blocks_whose_tokens_are_final_are_published() -> None:
    """Half of a block is known and the other half a rejected draft."""
    speculative = scheduler()
    sequence = add(speculative, given.request(LOOP[:24], 90))
    warm(speculative, sequence)
    before = sequence.num_tokens
    plan = step(speculative, [*LOOP[:before], 77])
    assert before // 4 < (plan.batch[0].start + plan.batch[0].num_tokens) // 4
    speculative.end(sequence)

    again = add(speculative, given.request(LOOP[: before + 6], 1), 2)
    step(speculative)

    assert again.num_cached_tokens == before // 4 * 4


@pytest.mark.parametrize(("remaining", "expected"), [(1, 0), (2, 1), (4, 3), (5, 4), (9, 4)])
def test_the_last_token_is_never_a_draft(remaining: int, expected: int) -> None:
    speculative = scheduler()
    sequence = add(speculative, given.request(LOOP[:24], 200))
    warm(speculative, sequence)
    sequence.request = given.request(LOOP[:24], sequence.num_output_tokens + remaining)

    assert num_drafts(speculative.schedule(0.0)) == [expected]


def test_drafts_fill_a_step_up_to_its_limit() -> None:
    speculative = scheduler(drafts=8, max_step_tokens=10)
    sequences = [add(speculative, given.request(LOOP[:24], 300), number) for number in range(4)]
    warm(speculative, *sequences)

    plan = speculative.schedule(0.0)

    assert plan.num_tokens == sum(entry.num_tokens for entry in plan.batch) == 10


def test_the_most_probable_drafts_come_first() -> None:
    speculative = scheduler(drafts=8, max_step_tokens=10)
    newcomer, proven = (choices_of(given.request(LOOP[:24], 300), number)[0] for number in range(2))
    speculative.add([proven])
    warm(speculative, proven)
    speculative.add([newcomer])
    step(speculative)

    assert num_drafts(speculative.schedule(0.0)) == [0, 8]


def test_a_full_step_has_no_drafts_and_nothing_is_indexed() -> None:
    speculative = scheduler(max_step_tokens=2)
    sequences = [add(speculative, given.request(LOOP[:24], 20), number) for number in range(2)]
    step(speculative)
    while speculative.num_running:
        assert num_drafts(step(speculative)) == [0, 0]
    assert all(sequence.drafter is None for sequence in sequences)


def test_larger_steps_need_more_probable_drafts() -> None:
    speculative = scheduler(drafts=1, max_step_tokens=1000, num_blocks=4000)
    sequences = [add(speculative, given.request(LOOP[:24], 300), number) for number in range(12)]
    step(speculative)
    assert num_drafts(step(speculative)) == [0] * 12, "drafts before any was accepted"
    lone = scheduler(drafts=1)
    add(lone, given.request(LOOP[:24], 300))
    step(lone)
    assert num_drafts(step(lone)) == [1]
    warm(speculative, *sequences)
    assert num_drafts(step(speculative)) == [1] * 12, "drafts after many were accepted"
    assert 1 / (1 + FREE_TOKENS) < 0.25 < 12 / (12 + FREE_TOKENS)


def test_drafts_preempt_no_sequence() -> None:
    speculative = scheduler(num_blocks=40, drafts=8)
    for number in range(4):
        add(speculative, given.request(LOOP[: 8 + number], 60), number)
    num_preempted = num_drafted = 0
    while speculative.num_running or speculative.num_waiting:
        plan = speculative.schedule(0.0)
        num_drafted += sum(num_drafts(plan))
        if plan.preempted:
            num_preempted += 1
            waiting = [one for one in plan.preempted if one.status is Status.WAITING]
            assert all(one.drafter is None for one in waiting), "who waits has tokens and nothing else"
            known = [*plan.preempted, *(entry.sequence for entry in plan.batch)]
            assert sum(-(-one.num_tokens // 4) for one in known) > 40, "there were blocks for all that is known"
        speculative.apply(plan.batch, [sampled(entry, LOOP) if entry.samples else None for entry in plan.batch])
        speculative.check_integrity()
    assert num_preempted > 0
    assert num_drafted > 50


@pytest.mark.parametrize(("num_blocks", "expected"), [(2, []), (3, [3])])
def test_drafts_need_a_free_block(num_blocks: int, expected: list[int]) -> None:
    blocks = BlockManager(num_blocks, 4, model="m")
    sequence, plan = given.sequence(LOOP[:8], 20), Plan()
    assert blocks.allocate(sequence)
    sequence.num_computed_tokens = 7
    plan.add(sequence, 1)

    Speculation(4, 32).extend(plan, blocks)

    assert list(plan.batch[0].drafts) == expected
    assert plan.num_tokens == 1 + len(expected)
    assert blocks.num_free_blocks == 0
    blocks.check_integrity([sequence])


def test_no_drafts_under_a_constraint() -> None:
    free = given.request(LOOP[:24], 60)
    bound = replace(free, sampling_params=replace(free.sampling_params, constraint=Constraint("json_object")))
    speculative = scheduler()
    sequence = add(speculative, bound)

    while sequence.finish_reason is None:
        assert num_drafts(step(speculative)) == [0]


def test_without_speculation_there_are_no_drafts() -> None:
    plain = given.scheduler()
    sequence = add(plain, given.request(LOOP[:24], 30))

    while sequence.finish_reason is None:
        assert num_drafts(step(plain)) == [0]
    assert sequence.drafter is None
