from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from svclib import memory


@pytest.fixture(autouse=True)
def _looked_up_anew() -> Iterator[None]:
    memory._glibc.cache_clear()
    yield
    memory._glibc.cache_clear()


def test_it_asks_the_c_library_where_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Glibc:
        def malloc_trim(self, keep: int) -> None:
            calls.append(keep)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Glibc())
    memory.trim_memory()
    assert calls == [0]


def test_elsewhere_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory.trim_memory()
