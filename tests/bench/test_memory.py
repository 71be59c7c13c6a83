from __future__ import annotations

import asyncio
import mmap
import os
import re
import sys

import pytest

from bench import memory
from tests.stack import SERVICES, Stack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")

SIZES = r"\d+ \| \d+ \| \d+ \| \d+"


def test_usage_is_split_by_kind() -> None:
    size = 20 << 20
    before = memory.usage_of(os.getpid())
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory_map:
        memory_map.write(b"x" * size)
        after = memory.usage_of(os.getpid())
    assert size / 2 < after.anonymous - before.anonymous < 2 * size
    assert after.huge_pages <= after.anonymous < after.total


def test_a_running_stack_is_measured(simulated: Stack) -> None:
    before, peak, computed = asyncio.run(memory.measure(simulated, tokens=100, concurrency=2))
    assert computed >= 100
    assert set(SERVICES) <= set(before) <= set(peak)
    assert all(peak[name].total >= usage.total > 0 for name, usage in before.items())


def test_the_table_starts_with_the_largest(capsys: pytest.CaptureFixture[str]) -> None:
    small, large = memory.Usage(5_000_000, 3_000_000, 2_000_000), memory.Usage(9_000_000, 9_000_000, 0)
    memory.report({"small": small}, {"small": small, "large": large})
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert all(re.fullmatch(rf"\|( \w+)? \| (start|peak) \| {SIZES} \|", row) for row in rows)
    assert rows[1] == "| | peak | 9 | 0 | 9 | 0 |"
    assert rows[3] == "| | peak | 5 | 2 | 1 | 2 |"
