from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine_svc.scheduling.prefix_hash import block_hash, root_hash

ROOT = root_hash({"model": "m"})


def test_equal_inputs_give_equal_names() -> None:
    assert root_hash({"model": "m", "salt": "s"}) == root_hash({"salt": "s", "model": "m"})
    assert block_hash(ROOT, [1, 2]) == block_hash(ROOT, (1, 2))


def test_a_salt_is_not_an_adapter_of_the_same_name() -> None:
    names = [
        root_hash({"model": "P", "salt": "x"}),
        root_hash({"model": "P", "adapter": "x"}),
        root_hash({"model": "P"}),
        root_hash({"model": "P", "salt": "y"}),
        root_hash({"model": "P", "salt": "x", "adapter": ""}),
    ]
    assert len(set(names)) == len(names)


def test_a_root_is_not_a_block() -> None:
    assert root_hash({}) != block_hash(b"", [])


@given(st.lists(st.text(max_size=4), min_size=2, max_size=2), st.lists(st.text(max_size=4), min_size=2, max_size=2))
def test_field_boundaries_change_the_hash(one: list[str], other: list[str]) -> None:
    equal = root_hash(dict(zip("ab", one, strict=True))) == root_hash(dict(zip("ab", other, strict=True)))
    assert equal == (one == other)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=4), st.lists(st.integers(0, 2**32 - 1), max_size=4))
def test_token_boundaries_change_the_hash(one: list[int], other: list[int]) -> None:
    assert (block_hash(ROOT, one) == block_hash(ROOT, other)) == (one == other)


def test_the_hash_covers_everything_before() -> None:
    assert block_hash(block_hash(ROOT, [1]), [2]) != block_hash(block_hash(ROOT, [3]), [2])
