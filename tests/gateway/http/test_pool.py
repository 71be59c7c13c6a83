"""The connection pool: never more than the limit, and new connections are accepted."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.pool import ConnectionPool, raise_file_limit


class Fake:
    def __init__(self, pool: ConnectionPool, open_ones: list[Fake]) -> None:
        self.pool, self.open_ones = pool, open_ones
        open_ones.append(self)
        pool.add(self)

    def evict(self) -> None:
        self.open_ones.remove(self)
        self.pool.remove(self)


@given(st.lists(st.tuples(st.sampled_from(["add", "busy", "idle", "remove"]), st.integers(0, 9)), max_size=60))
def test_never_more_than_the_limit(steps: list[tuple[str, int]]) -> None:
    pool = ConnectionPool(4)
    open_ones: list[Fake] = []
    for action, index in steps:
        if action == "add":
            Fake(pool, open_ones)
        elif open_ones:
            connection = open_ones[index % len(open_ones)]
            if action == "remove":
                open_ones.remove(connection)
            {"busy": pool.note_busy, "idle": pool.note_idle, "remove": pool.remove}[action](connection)
        pool.check_integrity()
        assert len(open_ones) <= 4


def test_longest_idle_connection_is_evicted() -> None:
    pool = ConnectionPool(3)
    open_ones: list[Fake] = []
    first, second, third = (Fake(pool, open_ones) for _ in range(3))
    pool.note_busy(first)
    pool.note_idle(second)
    newcomer = Fake(pool, open_ones)
    assert open_ones == [first, second, newcomer]
    assert third not in open_ones


def test_busy_connections_are_not_evicted() -> None:
    pool = ConnectionPool(1)
    open_ones: list[Fake] = []
    first = Fake(pool, open_ones)
    pool.note_busy(first)
    Fake(pool, open_ones)
    assert open_ones == [first]


@pytest.mark.parametrize(
    ("before", "after"),
    [((1024, 4096), (4096, 4096)), ((1024, 10**6), (65536, 10**6)), ((4096, 4096), None), ((10**6, 10**6), None),
     ((256, resource.RLIM_INFINITY), (65536, resource.RLIM_INFINITY))],
)  # fmt: skip
def test_the_limit_on_files(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: tuple[int, int] | None
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
    allowed = raise_file_limit()
    assert told == ([] if after is None else [after])
    assert 0 < allowed < (after or before)[0]


def test_file_limit_that_cannot_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert 0 < raise_file_limit() < 1024
