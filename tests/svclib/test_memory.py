from __future__ import annotations

import asyncio
import ctypes
import mmap
import sys
from collections.abc import Iterator

import pytest

from svclib import memory


@pytest.fixture(autouse=True)
def _uncached_glibc() -> Iterator[None]:
    memory._glibc.cache_clear()
    yield
    memory._glibc.cache_clear()


def test_trim_memory_calls_malloc_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Glibc:
        def malloc_trim(self, keep: int) -> None:
            calls.append(keep)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Glibc())
    memory.trim_memory()
    assert calls == [0]


def test_trim_memory_without_malloc_trim_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory.trim_memory()


@pytest.mark.parametrize(("held", "trims"), [((9, 0), 0), ((10, 6), 0), ((10, 5), 1), ((10, 5, 2), 1), ((30, 9, 4), 1)])
async def test_the_heap_is_trimmed_when_usage_falls_to_half_its_peak(
    held: tuple[int, ...], trims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(memory, "trim_heap", lambda: calls.append(None))
    monkeypatch.setattr(memory, "TRIM_SECONDS", 0.0)
    watermark = memory.Watermark(10)
    for num_bytes in held:
        watermark.note(num_bytes)
    await asyncio.sleep(0.01)
    assert len(calls) == trims


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_address_space_grows_with_mapped_memory() -> None:
    before = memory.address_space()
    # Not a bytearray: malloc may give it address space that the process already has.
    with mmap.mmap(-1, 100_000_000) as taken:
        after = memory.address_space()
        assert before is not None
        assert after is not None
        assert len(taken) <= after - before < 2 * len(taken)


def test_address_space_is_none_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert memory.address_space() is None
