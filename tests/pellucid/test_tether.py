"""Children die with the process that started them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pellucid.children import Programs, is_alive, wait_until_gone

PARENT = """
import asyncio, sys
from pellucid.process import ServiceProcess

async def main():
    processes = [await ServiceProcess.start("sleeps", (), lambda text: print(text, flush=True)) for _ in range(4)]
    print(*(process.pid for process in processes), flush=True)
    await asyncio.gather(*(process.wait() for process in processes))

asyncio.run(main())
"""


def start_parent() -> tuple[subprocess.Popen[str], list[int]]:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    seen = [parent.stdout.readline().strip() for _ in range(5)]
    assert seen.count("up") == 4
    return parent, [int(pid) for line in seen if line != "up" for pid in line.split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_children_die_with_their_supervisor(programs: Programs, number: signal.Signals) -> None:
    programs.write("sleeps")
    parent, pids = start_parent()
    assert len(pids) == 4
    assert all(map(is_alive, pids))
    parent.send_signal(number)
    parent.wait()
    wait_until_gone(pids)


def test_a_busy_child_dies_with_its_supervisor(programs: Programs) -> None:
    programs.write("sleeps", "print('up', flush=True)\nwhile True: pass")
    parent, pids = start_parent()
    parent.kill()
    parent.wait()
    wait_until_gone(pids)


def test_a_tethered_process_lives_as_long_as_its_standard_input_is_open(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)")
    child = subprocess.Popen(
        [sys.executable, "-m", "pellucid.tether", "sleeps"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    child.stdin.write(b"what is written there means nothing\n")
    child.stdin.flush()
    assert child.poll() is None
    child.stdin.close()
    assert child.wait(30) == -signal.SIGKILL
