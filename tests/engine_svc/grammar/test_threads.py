from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from engine_svc.grammar.threads import STACK_BYTES, DeepThreads

HANGING = """
import time
from engine_svc.grammar.threads import DeepThreads

DeepThreads(1, "deep").submit(lambda: time.sleep(600))
"""


class Panic(BaseException):
    """pyo3's panics are no ``Exception`` either."""


def panic() -> None:
    raise Panic("gone")


def test_only_these_threads_have_deep_stacks() -> None:
    before = threading.stack_size()
    threads = DeepThreads(2, "deep")
    assert threading.stack_size() == before != STACK_BYTES
    names = {threads.submit(lambda: threading.current_thread().name).result() for _ in range(50)}
    assert all(name.startswith("deep") for name in names)
    assert sum(thread.name.startswith("deep") for thread in threading.enumerate()) == 2
    threads.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a niceness for each thread")
def test_nice_threads_leave_the_process_as_it_is() -> None:
    nice, plain = DeepThreads(1, "nice", niceness=3), DeepThreads(1, "plain")
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    found = [threads.submit(lambda: os.getpriority(os.PRIO_PROCESS, 0)).result() for threads in (nice, plain)]
    assert found == [usual + 3, usual]
    nice.close()
    plain.close()


def test_a_thread_survives_whatever_is_raised() -> None:
    threads = DeepThreads(1, "deep")
    with pytest.raises(Panic):
        threads.submit(panic).result(timeout=30)
    assert threads.submit(lambda: 5).result(timeout=30) == 5
    threads.close()


def test_closing_cancels_what_waits_and_lets_the_rest_end() -> None:
    threads, begun, go = DeepThreads(1, "deep"), threading.Event(), threading.Event()

    def held() -> bool:
        begun.set()
        return go.wait(30)

    running, waiting = threads.submit(held), threads.submit(lambda: True)
    assert begun.wait(30)
    threads.close()
    later = threads.submit(lambda: True)
    go.set()
    assert running.result(timeout=30)
    for cancelled in (waiting, later):
        with pytest.raises(CancelledError):
            cancelled.result(timeout=30)


def test_a_process_ends_while_its_threads_work() -> None:
    assert subprocess.run([sys.executable, "-c", HANGING], timeout=60, check=False).returncode == 0
