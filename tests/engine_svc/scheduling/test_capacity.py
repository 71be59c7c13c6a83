from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.capacity import Capacity, Slots
from svclib.errors import ContextLengthExceeded, InvalidRequest, Overloaded

ROOMY = Capacity(max_model_len=100, block_size=4, num_blocks=1000)


def test_requested_max_tokens_are_kept() -> None:
    assert ROOMY.max_tokens(60, 40) == 40
    assert ROOMY.max_tokens(99, 1) == 1


def test_without_max_tokens_the_rest_of_the_context() -> None:
    assert ROOMY.max_tokens(60, None) == 40
    assert ROOMY.max_tokens(99, None) == 1


@pytest.mark.parametrize("length", [100, 101, 5000])
@pytest.mark.parametrize("asked", [None, 1, 5000])
def test_a_prompt_that_fills_the_context_is_refused(length: int, asked: int | None) -> None:
    with pytest.raises(ContextLengthExceeded, match=rf"100 tokens.* {length}") as caught:
        ROOMY.max_tokens(length, asked)
    assert caught.value.param == "prompt"


def test_too_many_tokens_for_the_context_are_refused_with_both_numbers() -> None:
    with pytest.raises(
        InvalidRequest, match=r"100 tokens and the prompt has 60, so max_tokens must be at most 40, not 41"
    ) as caught:
        ROOMY.max_tokens(60, 41)
    assert (type(caught.value), caught.value.param) == (InvalidRequest, "max_tokens")


def test_a_prompt_larger_than_the_pool_is_refused_at_once() -> None:
    """80 prompt tokens, blocks of 16, a pool of 4."""
    pool = Capacity(max_model_len=1024, block_size=16, num_blocks=4)
    with pytest.raises(InvalidRequest, match="need 5 KV cache blocks of 16 tokens, and the engine has 4") as caught:
        pool.max_tokens(80, 1)
    assert caught.value.param == "prompt"
    assert pool.max_tokens(8, 4) == 4


def test_an_answer_larger_than_the_pool_is_refused_at_once() -> None:
    pool = Capacity(max_model_len=1024, block_size=16, num_blocks=4)
    assert pool.max_tokens(60, 5) == 5
    with pytest.raises(InvalidRequest, match="need 5 KV cache blocks") as caught:
        pool.max_tokens(60, 6)
    assert caught.value.param == "max_tokens"


def test_without_max_tokens_no_more_than_the_pool_holds() -> None:
    pool = Capacity(max_model_len=1024, block_size=16, num_blocks=4)
    assert pool.max_tokens(60, None) == 5
    assert pool.max_tokens(64, None) == 1
    with pytest.raises(InvalidRequest):
        pool.max_tokens(65, None)


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 30), st.integers(1, 300), st.integers(1, 300))
def test_exactly_what_the_blocks_hold_is_admitted(
    max_model_len: int, block_size: int, num_blocks: int, num_prompt: int, asked: int
) -> None:
    pool = BlockManager(num_blocks, block_size, model="m")
    fits = num_prompt + asked <= max_model_len and pool.blocks_for(num_prompt + asked - 1) <= num_blocks
    try:
        let_in = Capacity(max_model_len, block_size, num_blocks).max_tokens(num_prompt, asked) == asked
    except InvalidRequest:
        let_in = False
    assert let_in == fits


def test_slots_are_counted_by_choices() -> None:
    slots = Slots(max_running=2, max_waiting=3)
    slots.take(3)
    with pytest.raises(Overloaded) as caught:
        slots.take(3)
    assert caught.value.retry_after is not None
    slots.take(2)
    with pytest.raises(Overloaded):
        slots.take(1)
    slots.release(3)
    slots.take(3)
    assert slots.num_taken == 5


def test_more_choices_than_there_are_slots_can_never_be_taken() -> None:
    with pytest.raises(InvalidRequest, match=r"n must be at most 5 choices .*, not 6") as caught:
        Slots(max_running=2, max_waiting=3).take(6)
    assert caught.value.param == "n"
