from __future__ import annotations

import asyncio
import ctypes
import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from svclib import memory


@pytest.fixture(autouse=True)
def _uncached_libc() -> Iterator[None]:
    memory._libc.cache_clear()
    yield
    memory._libc.cache_clear()


def test_trim_memory_calls_malloc_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Glibc:
        def malloc_trim(self, keep: int) -> None:
            calls.append(keep)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Glibc())
    memory.trim_memory()
    assert calls == [0]


def test_without_glibc_nothing_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
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


RELEASE_FILE_PAGES = """
import re, sqlite3, ssl
from svclib.memory import release_file_pages

def resident():
    with open("/proc/self/status") as file:
        return int(re.search(r"RssFile:\\s+(\\d+)", file.read())[1])

before = resident()
release_file_pages()
print(before - resident())
assert sqlite3.connect(":memory:").execute("select 1 + 1").fetchone() == (2,)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_file_pages_are_released_and_libraries_still_work() -> None:
    command = [sys.executable, "-c", RELEASE_FILE_PAGES]
    released = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert released > 2000


def test_only_files_without_own_pages_are_released(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def mapping(start: int, permissions: str, file: str, anonymous: int) -> str:
        return f"{start:x}-{start + 4096:x} {permissions} 0 08:01 7   {file}\nRss: 4 kB\nAnonymous:  {anonymous} kB\n"

    smaps = tmp_path / "smaps"
    smaps.write_text(
        mapping(0x10000, "r-xp", "/lib/a b.so", 0)
        + mapping(0x20000, "r--p", "/lib/relocated.so", 4)
        + mapping(0x30000, "rw-p", "/lib/data.so", 0)
        + mapping(0x40000, "r--p", "", 0)
        + mapping(0x50000, "r-xp", "[vdso]", 0)
        + mapping(0x60000, "r--s", "/weights", 0)
        + mapping(0x70000, "r--p", "/lib/constants.so", 0)
    )
    real = open
    monkeypatch.setattr("builtins.open", lambda _, **options: real(smaps, **options))
    assert list(memory._unwritten_file_mappings()) == [(0x10000, 0x11000), (0x70000, 0x71000)]


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
