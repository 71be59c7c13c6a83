from __future__ import annotations

from dataclasses import replace

import pytest

from engine_svc.constraint import Constraint, Thinking
from engine_svc.grammar.matcher import CompiledGrammar
from engine_svc.grammar.store import MAX_KEPT, GrammarStore
from svclib.errors import InvalidRequest, Overloaded
from tests.engine_svc.grammar.given import choice, compiled

SIZE = 1000


def number(value: int) -> Constraint:
    return Constraint("regex", str(value))


def put(store: GrammarStore, constraint: Constraint, num_bytes: int = SIZE) -> CompiledGrammar:
    room = store.room(constraint, num_bytes - len(constraint.text))
    grammar = replace(compiled(choice("a")), room=room)
    store.keep(constraint, grammar)
    return grammar


def test_compiled_grammars_are_cached() -> None:
    store = GrammarStore(10 * SIZE)
    grammar = put(store, number(1))
    assert store.get(number(1)) is grammar
    assert store.get(number(2)) is None
    assert store.num_bytes == SIZE


def test_the_least_recently_used_is_evicted() -> None:
    store = GrammarStore(3 * SIZE)
    for value in (1, 2, 3):
        put(store, number(value))
    store.get(number(1))
    put(store, number(4))
    assert [value for value in range(1, 5) if store.get(number(value)) is not None] == [1, 3, 4]
    assert store.num_bytes == 3 * SIZE


def test_grammars_that_requests_hold_count_until_the_last_reference_is_gone() -> None:
    store = GrammarStore(2 * SIZE)
    held = [replace(put(store, number(value)), thinking=Thinking(True, (), (1,))) for value in (1, 2)]
    with pytest.raises(Overloaded):
        store.room(number(3), SIZE - 1)
    assert store.num_bytes == 2 * SIZE
    held.pop()
    put(store, number(3))
    assert store.num_bytes == 2 * SIZE


def test_unused_room_is_released() -> None:
    store = GrammarStore(SIZE)
    room = store.room(number(1), SIZE - 1)
    del room
    assert store.num_bytes == 0


def test_all_the_memory_fits_and_one_byte_more_is_refused() -> None:
    store = GrammarStore(SIZE)
    put(store, number(1))
    with pytest.raises(InvalidRequest, match="MiB of memory") as caught:
        store.room(number(2), SIZE)
    assert caught.value.param == "regex"


def test_the_cache_has_a_limit() -> None:
    store = GrammarStore(10 * SIZE * MAX_KEPT)
    for value in range(MAX_KEPT + 1):
        put(store, number(value))
    assert store.get(number(0)) is None
    assert store.get(number(1)) is not None
    assert store.num_bytes == SIZE * MAX_KEPT
