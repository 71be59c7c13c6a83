from __future__ import annotations

import random

import pytest

from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.sequence import Sequence
from tests.engine_svc import given


def manager(num_blocks: int = 10, block_size: int = 4, *, caching: bool = True, model: str = "m") -> BlockManager:
    return BlockManager(num_blocks, block_size, model=model, enable_prefix_caching=caching)


def compute(blocks: BlockManager, sequence: Sequence) -> None:
    """As if a step had computed all known tokens."""
    start, sequence.num_computed_tokens = sequence.num_computed_tokens, sequence.num_tokens
    blocks.publish(sequence, start)


def admit(blocks: BlockManager, prompt: list[int] | int) -> Sequence:
    sequence = given.sequence(prompt)
    assert blocks.allocate(sequence)
    return sequence


def num_cached(blocks: BlockManager, prompt: list[int] | int) -> int:
    """How many tokens of a prompt would come from the cache."""
    sequence = admit(blocks, prompt)
    cached = sequence.num_computed_tokens
    blocks.free(sequence)
    return cached


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_blocks_for(tokens: int, expected: int) -> None:
    assert manager().blocks_for(tokens) == expected


def test_allocation_covers_all_known_tokens() -> None:
    blocks = manager()
    sequence = admit(blocks, 9)
    assert len(set(sequence.block_table)) == 3
    assert (sequence.num_computed_tokens, blocks.num_free_blocks) == (0, 7)
    blocks.check_integrity([sequence])
    blocks.free(sequence)
    assert (sequence.block_table, blocks.num_free_blocks) == ([], 10)
    blocks.check_integrity([])


def test_too_few_blocks_change_nothing() -> None:
    blocks = manager(num_blocks=3)
    holder, late = admit(blocks, 8), given.sequence(8)
    assert not blocks.allocate(late)
    assert (late.block_table, late.num_computed_tokens, blocks.num_free_blocks) == ([], 0, 1)
    blocks.check_integrity([holder])


def test_trimming_frees_blocks_without_known_tokens() -> None:
    blocks = manager()
    sequence = admit(blocks, 9)
    assert blocks.grow(sequence, 20)
    kept = sequence.block_table[:3]

    blocks.trim(sequence)

    assert (sequence.block_table, blocks.num_free_blocks) == (kept, 7)
    blocks.trim(sequence)
    assert sequence.block_table == kept
    blocks.check_integrity([sequence])


def test_headroom_stays_free() -> None:
    blocks = manager(num_blocks=3)
    assert not blocks.allocate(given.sequence(8), headroom=2)
    assert blocks.allocate(given.sequence(8), headroom=1)


def test_growing_takes_blocks_only_when_they_are_needed() -> None:
    blocks = manager(num_blocks=3)
    sequence = admit(blocks, 3)
    assert blocks.grow(sequence, 4)
    assert len(sequence.block_table) == 1
    assert blocks.grow(sequence, 12)
    assert len(set(sequence.block_table)) == 3
    assert not blocks.grow(sequence, 13)
    assert len(sequence.block_table) == 3
    blocks.check_integrity([sequence])


def test_nothing_is_cached_before_it_is_computed() -> None:
    blocks = manager()
    first = admit(blocks, 9)
    assert num_cached(blocks, 9) == 0
    first.num_computed_tokens = 5
    blocks.publish(first, 0)
    assert num_cached(blocks, 9) == 4
    compute(blocks, first)
    assert num_cached(blocks, 9) == 8


def test_a_prefix_in_use_is_shared_by_reference() -> None:
    blocks = manager()
    first = admit(blocks, 9)
    compute(blocks, first)
    second = admit(blocks, 10)
    assert second.block_table[:2] == first.block_table[:2]
    assert second.block_table[2] != first.block_table[2]
    assert blocks.num_free_blocks == 10 - 4
    blocks.check_integrity([first, second])
    blocks.free(first)
    blocks.check_integrity([second])
    assert blocks.num_free_blocks == 10 - 3


def test_an_evictable_prefix_is_reused() -> None:
    blocks = manager()
    first = admit(blocks, 9)
    compute(blocks, first)
    table = first.block_table
    blocks.free(first)
    assert blocks.num_free_blocks == 10
    second = admit(blocks, 9)
    assert second.block_table[:2] == table[:2]
    assert second.num_computed_tokens == 8
    blocks.check_integrity([second])


@pytest.mark.parametrize(("length", "cached"), [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8)])
def test_one_token_is_always_left_to_compute(length: int, cached: int) -> None:
    blocks = manager()
    first = admit(blocks, 12)
    compute(blocks, first)
    assert num_cached(blocks, length) == cached


def test_only_what_follows_the_same_beginning_is_shared() -> None:
    blocks = manager()
    compute(blocks, admit(blocks, [1, 2, 3, 4, 5, 6, 7, 8, 9]))
    assert num_cached(blocks, [1, 2, 3, 4, 0, 6, 7, 8, 9]) == 4
    assert num_cached(blocks, [0, 2, 3, 4, 5, 6, 7, 8, 9]) == 0
    assert num_cached(blocks, [5, 6, 7, 8, 9]) == 0


def test_generated_tokens_are_cached_too() -> None:
    blocks = manager()
    first = admit(blocks, [1, 2, 3])
    first.token_ids += [4, 5, 6, 7, 8]
    assert blocks.grow(first, 8)
    compute(blocks, first)
    assert num_cached(blocks, 9) == 8


def test_without_caching_nothing_is_found() -> None:
    blocks = manager(caching=False)
    first = admit(blocks, 9)
    compute(blocks, first)
    assert num_cached(blocks, 9) == 0
    blocks.free(first)
    assert num_cached(blocks, 9) == 0
    blocks.check_integrity([])


def test_the_longest_unused_prefix_is_evicted_first() -> None:
    blocks = manager(num_blocks=4)
    for prompt in ([1] * 5, [2] * 5, [3] * 5):
        sequence = admit(blocks, prompt)
        compute(blocks, sequence)
        blocks.free(sequence)
    assert num_cached(blocks, [1] * 5) == 4  # and it is now the latest used
    blocks.free(admit(blocks, [9] * 8))  # takes the one free block and evicts one
    assert [num_cached(blocks, [value] * 5) for value in (1, 2, 3)] == [4, 0, 4]


def test_deep_blocks_are_evicted_before_those_they_depend_on() -> None:
    blocks = manager(num_blocks=3)
    sequence = admit(blocks, 12)
    compute(blocks, sequence)
    blocks.free(sequence)
    blocks.free(admit(blocks, [99]))
    assert num_cached(blocks, 12) == 8
    blocks.check_integrity([])


def test_used_blocks_are_never_evicted() -> None:
    blocks = manager(num_blocks=4)
    first = admit(blocks, 9)
    compute(blocks, first)
    assert not blocks.allocate(given.sequence([99] * 5))
    other = admit(blocks, [99] * 4)
    blocks.check_integrity([first, other])


def test_evictable_blocks_that_are_reused_are_not_counted_as_free() -> None:
    blocks = manager(num_blocks=4)
    first = admit(blocks, 12)
    compute(blocks, first)
    blocks.free(first)
    assert blocks.num_free_blocks == 4
    assert not blocks.allocate(given.sequence(12), headroom=2)
    assert blocks.allocate(given.sequence(12), headroom=1)


def test_equal_prompts_computed_side_by_side_are_published_once() -> None:
    blocks = manager()
    one, other = admit(blocks, 9), admit(blocks, 9)
    assert not set(one.block_table) & set(other.block_table)
    compute(blocks, one)
    compute(blocks, other)
    blocks.check_integrity([one, other])
    third = admit(blocks, 9)
    assert third.block_table[:2] == one.block_table[:2]
    for sequence in (one, other, third):
        blocks.free(sequence)
    blocks.check_integrity([])
    assert blocks.num_free_blocks == 10


@pytest.mark.parametrize("caching", [True, False])
def test_a_fork_shares_the_full_blocks_of_the_prompt(caching: bool) -> None:
    blocks = manager(caching=caching)
    parent, child = admit(blocks, 10), given.sequence(10)
    compute(blocks, parent)
    assert blocks.fork(parent, child)
    assert child.block_table[:2] == parent.block_table[:2]
    assert child.block_table[2] != parent.block_table[2]
    assert child.num_computed_tokens == 8
    blocks.check_integrity([parent, child])
    blocks.free(parent)
    blocks.check_integrity([child])
    blocks.free(child)
    assert blocks.num_free_blocks == 10


def test_a_fork_leaves_the_last_token_of_the_prompt_to_the_child() -> None:
    blocks = manager(caching=False)
    parent, child = admit(blocks, 8), given.sequence(8)
    compute(blocks, parent)
    assert blocks.fork(parent, child)
    assert child.num_computed_tokens == 4
    assert not set(child.block_table[1:]) & set(parent.block_table)


def test_a_fork_without_room_changes_nothing() -> None:
    blocks = manager(num_blocks=3, caching=False)
    parent, child = admit(blocks, 10), given.sequence(10)
    assert not blocks.fork(parent, child)
    assert child.block_table == []
    blocks.check_integrity([parent])


def test_a_fork_takes_the_longer_of_cache_and_parent() -> None:
    """A child that was preempted finds its own output in the cache, beyond the prompt it shares."""
    blocks = manager()
    parent, child = admit(blocks, 5), given.sequence(5)
    compute(blocks, parent)
    child.token_ids += [70, 71, 72, 73]
    assert blocks.fork(parent, child)
    compute(blocks, child)
    blocks.free(child)
    assert blocks.fork(parent, child)
    assert child.num_computed_tokens == 8
    blocks.check_integrity([parent, child])


def test_check_integrity_notices_a_missing_sequence() -> None:
    blocks = manager()
    sequence = admit(blocks, 9)
    with pytest.raises(AssertionError, match="reference counts"):
        blocks.check_integrity([])
    with pytest.raises(AssertionError, match="reference counts"):
        blocks.check_integrity([sequence, sequence])


@pytest.mark.parametrize("seed", range(4))
def test_integrity_after_random_operations(seed: int) -> None:
    """2,500 random operations with shared prefixes in a pool of 12 blocks, checked after each."""
    chance = random.Random(seed)
    blocks = manager(num_blocks=12, block_size=2, caching=seed != 3)
    live: list[Sequence] = []
    for _ in range(2_500):
        match chance.choice(["allocate", "fork", "grow", "compute", "free"]):
            case "allocate":
                sequence = given.sequence([chance.randrange(2) for _ in range(chance.randrange(1, 12))])
                if blocks.allocate(sequence, headroom=chance.randrange(3)):
                    live.append(sequence)
            case "fork" if live:
                parent = chance.choice(live)
                child = given.sequence(parent.token_ids[: parent.num_prompt_tokens])
                shareable = blocks.num_shareable_blocks(parent) * blocks.block_size
                if parent.num_computed_tokens >= shareable and blocks.fork(parent, child):
                    live.append(child)
            case "grow" if live:
                sequence = chance.choice(live)
                new = [chance.randrange(2) for _ in range(chance.randrange(4))]
                if blocks.grow(sequence, sequence.num_tokens + len(new)):
                    sequence.token_ids += new
            case "compute" if live:
                sequence = chance.choice(live)
                start = sequence.num_computed_tokens
                sequence.num_computed_tokens = chance.randint(start, sequence.num_tokens)
                blocks.publish(sequence, start)
            case "free" if live:
                blocks.free(live.pop(chance.randrange(len(live))))
        blocks.check_integrity(live)
    for sequence in live:
        blocks.free(sequence)
    assert blocks.num_free_blocks == 12
