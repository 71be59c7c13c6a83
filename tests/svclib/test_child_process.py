from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svclib.child_process import ChildDied, ChildNotStarted, ChildPool, ChildTimeout
from tests.svclib.child import MEMORY_BYTES

MODULE = "tests.svclib.child"
PATIENCE = 30.0


@pytest.fixture
def pool() -> Iterator[ChildPool]:
    pool = ChildPool(1, MODULE)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[ChildPool]:
    pool = ChildPool(1, MODULE)
    yield pool
    pool.close()


def pid_of(pool: ChildPool) -> int:
    return int(pool.call(b"pid", PATIENCE))


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + PATIENCE
    while _runs(pid):
        assert time.monotonic() < until, f"process {pid} still runs"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@given(st.binary(max_size=2000))
def test_answers(shared: ChildPool, message: bytes) -> None:
    assert shared.call(b"echo " + message, PATIENCE) == message


def test_messages_may_be_larger_than_a_socket_buffer(shared: ChildPool) -> None:
    message = os.urandom(10_000_000)
    assert shared.call(b"echo " + message, PATIENCE) == message


def test_one_child_serves_call_after_call(pool: ChildPool) -> None:
    assert pid_of(pool) == pid_of(pool)


def test_a_call_that_takes_too_long_is_killed_and_the_next_one_answered(pool: ChildPool) -> None:
    pid = pid_of(pool)
    with pytest.raises(ChildTimeout):
        pool.call(b"sleep 1000", 0.1)
    wait_until_gone(pid)
    assert pid_of(pool) != pid


def test_a_child_that_ends_is_replaced(pool: ChildPool) -> None:
    for code in (b"0", b"1"):
        with pytest.raises(ChildDied):
            pool.call(b"exit " + code, PATIENCE)
    assert pool.call(b"echo x", PATIENCE) == b"x"


def test_a_child_killed_between_calls_is_replaced(pool: ChildPool) -> None:
    os.kill(pid_of(pool), signal.SIGKILL)
    with pytest.raises(ChildDied):
        pool.call(b"echo x", PATIENCE)
    assert pool.call(b"echo x", PATIENCE) == b"x"


def test_an_exception_is_named_and_ends_the_child(pool: ChildPool) -> None:
    pid = pid_of(pool)
    with pytest.raises(ChildDied, match="ValueError"):
        pool.call(b"nonsense", PATIENCE)
    assert pid_of(pool) != pid


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts address space")
def test_memory_is_limited(pool: ChildPool) -> None:
    small, large = MEMORY_BYTES // 4, MEMORY_BYTES * 2
    assert pool.call(b"allocate %d" % small, PATIENCE) == b"%d" % small
    with pytest.raises(ChildDied, match="MemoryError"):
        pool.call(b"allocate %d" % large, PATIENCE)


def test_calls_run_concurrently_in_several_children() -> None:
    pool = ChildPool(2, MODULE)
    with ThreadPoolExecutor(3) as threads:
        slow = threads.submit(pool.call, b"sleep 1000", PATIENCE)
        assert pool.call(b"echo x", PATIENCE) == b"x"
        pool.close()
        with pytest.raises(ChildDied):
            slow.result()


def test_a_ready_child_is_called_before_one_that_starts() -> None:
    pool = ChildPool(2, MODULE)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: pool.call(b"sleep 0.5", PATIENCE), range(2)))
    with pytest.raises(ChildDied):
        pool.call(b"exit 1", PATIENCE)
    assert len({pid_of(pool) for _ in range(5)}) == 1
    pool.close()


def test_close_kills_running_calls_and_refuses_waiting_and_later_ones(pool: ChildPool) -> None:
    pid = pid_of(pool)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(pool.call, b"sleep 1000", 1000.0) for _ in range(2)]
        pool.close()
        for call in calls:
            with pytest.raises(ChildDied):
                call.result(PATIENCE)
    wait_until_gone(pid)
    with pytest.raises(ChildDied):
        pool.call(b"echo x", PATIENCE)


def test_a_child_that_cannot_start_is_an_error_and_not_a_hang() -> None:
    pool = ChildPool(1, "tests.svclib.no_such_module")
    with pytest.raises(ChildNotStarted):
        pool.call(b"echo x", PATIENCE)
    pool.close()


def test_a_child_ends_with_its_parent_even_while_it_works() -> None:
    program = (
        "import threading; from svclib.child_process import ChildPool; pool = ChildPool(1, 'tests.svclib.child');"
        "print(pool.call(b'pid', 30).decode(), flush=True); pool.call(b'sleep 1000', 1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until_gone(pid)


def test_ctrl_c_is_left_to_the_parent(pool: ChildPool) -> None:
    pid = pid_of(pool)
    os.kill(pid, signal.SIGINT)
    assert pid_of(pool) == pid


def test_no_thread_and_no_file_is_left_behind(pool: ChildPool) -> None:
    pool.call(b"echo x", PATIENCE)
    threads, files = threading.active_count(), psutil.Process().num_fds()
    for _ in range(3):
        with pytest.raises(ChildTimeout):
            pool.call(b"sleep 1000", 0.05)
        pool.call(b"echo x", PATIENCE)
    assert threading.active_count() <= threads
    assert psutil.Process().num_fds() <= files
