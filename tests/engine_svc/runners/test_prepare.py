from __future__ import annotations

from dataclasses import fields, replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.attention.interface import PagedBatch
from engine_svc.runners.prepare import prepare
from engine_svc.scheduling.step import ScheduledSequence
from tests.engine_svc.sampling.given import sequence

BLOCK_SIZE = 4
CPU = torch.device("cpu")


def scheduled(num_tokens: int, start: int, count: int, blocks: list[int], first_id: int = 0) -> ScheduledSequence:
    """A run of a sequence whose tokens are numbered from ``first_id``."""
    one = sequence(prompt=range(first_id, first_id + num_tokens))
    one.block_table = blocks
    return ScheduledSequence(one, start, count)


def test_a_prompt_a_chunk_and_a_decode_lie_one_after_the_other() -> None:
    step = prepare(
        [
            scheduled(5, 0, 5, [7, 2], first_id=100),
            scheduled(9, 3, 4, [1, 5, 3], first_id=200),
            scheduled(6, 5, 1, [0, 6], first_id=300),
        ],
        BLOCK_SIZE,
        CPU,
    )

    assert step.input_ids.tolist() == [100, 101, 102, 103, 104, 203, 204, 205, 206, 305]
    assert step.positions.tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 6, 5]
    assert step.rows.tolist() == [4, 9], "the chunk is not the end of its sequence"
    assert step.paged.query_starts.tolist() == [0, 5, 9, 10]
    assert step.paged.context_lens.tolist() == [5, 7, 6]
    assert step.paged.block_tables.tolist() == [[7, 2, 0], [1, 5, 3], [0, 6, 0]]
    assert step.paged.slot_mapping.tolist() == [28, 29, 30, 31, 8, 7, 20, 21, 22, 25]


def test_drafts_follow_the_token_that_is_due_and_each_needs_logits() -> None:
    plain = scheduled(6, 5, 1, [0, 6], first_id=300)
    first, second = scheduled(5, 4, 1, [7, 2], first_id=100), scheduled(8, 7, 1, [1, 5, 3], first_id=200)
    chunk = scheduled(9, 0, 2, [4], first_id=400)

    step = prepare(
        [
            plain,
            replace(first, num_tokens=3, drafts=(31, 32)),
            chunk,
            replace(second, num_tokens=2, drafts=(41,)),
        ],
        BLOCK_SIZE,
        CPU,
    )

    assert step.input_ids.tolist() == [305, 104, 31, 32, 400, 401, 207, 41]
    assert step.positions.tolist() == [5, 4, 5, 6, 0, 1, 7, 8]
    assert step.rows.tolist() == [0, 1, 2, 3, 6, 7]
    assert step.paged.query_starts.tolist() == [0, 1, 4, 6, 8]
    assert step.paged.context_lens.tolist() == [6, 7, 2, 9]
    assert step.paged.slot_mapping.tolist() == [25, 8, 9, 10, 16, 17, 23, 12]


def test_prompt_rows_come_after_the_rows_to_sample() -> None:
    asking = sequence(prompt=range(9), prompt_logprobs=0)
    asking.block_table, asking.num_prompt_logprobs = [1, 5, 3], 4

    step = prepare([scheduled(5, 0, 5, [7, 2]), ScheduledSequence(asking, 3, 6)], BLOCK_SIZE, CPU)

    assert step.rows.tolist() == [4, 10, 6, 7, 8, 9]
    assert step.num_samples == 2


def test_tensors_have_the_types_that_the_interface_names() -> None:
    step = prepare([scheduled(3, 0, 2, [0])], BLOCK_SIZE, CPU)

    assert step.input_ids.dtype == step.positions.dtype == step.rows.dtype == torch.int64
    assert step.paged.slot_mapping.dtype == torch.int64
    assert (
        step.paged.query_starts.dtype == step.paged.context_lens.dtype == step.paged.block_tables.dtype == torch.int32
    )
    assert step.rows.tolist() == []


@given(data=st.data())
def test_every_token_is_written_to_its_own_slot(data: st.DataObject) -> None:
    free = data.draw(st.permutations(range(24)))
    batch = []
    for _ in range(data.draw(st.integers(1, 5))):
        length = data.draw(st.integers(1, 16))
        start = data.draw(st.integers(0, length - 1))
        count = data.draw(st.integers(1, length - start))
        blocks, free = free[: -(-length // BLOCK_SIZE)], free[-(-length // BLOCK_SIZE) :]
        batch.append(scheduled(length, start, count, list(blocks), first_id=data.draw(st.integers(0, 1000))))

    step = prepare(batch, BLOCK_SIZE, CPU)

    expected = [
        (entry.sequence.token_ids[t], t, entry.sequence.block_table[t // BLOCK_SIZE] * BLOCK_SIZE + t % BLOCK_SIZE)
        for entry in batch
        for t in range(entry.start, entry.start + entry.num_tokens)
    ]
    found = zip(step.input_ids.tolist(), step.positions.tolist(), step.paged.slot_mapping.tolist(), strict=True)
    assert list(found) == expected
    assert len({slot for _, _, slot in expected}) == len(expected)
    assert step.num_samples == sum(entry.samples for entry in batch)


def test_all_tensors_are_on_the_device() -> None:
    step = prepare([scheduled(3, 0, 2, [0])], BLOCK_SIZE, torch.device("meta"))

    paged = [getattr(step.paged, field.name) for field in fields(PagedBatch)]
    tensors = (step.input_ids, step.positions, step.rows, *paged)
    assert {tensor.device.type for tensor in tensors} == {"meta"}
