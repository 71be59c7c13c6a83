from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from svclib.child_process import ChildDied, ChildNotStarted, ChildTimeout
from svclib.fork_server import MAX_IDLE, ForkServer
from tests.svclib.child import MEMORY_BYTES
from tests.svclib.fork_child import NICENESS
from tests.svclib.test_child_process import wait_until_gone

MODULE = "tests.svclib.fork_child"
PATIENCE = 30.0


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer(MODULE)
    yield server
    server.close()


def ask(server: ForkServer, message: bytes, seconds: float = PATIENCE) -> bytes:
    with server.forked() as forked:
        return forked.answer(message, seconds)


def pid_of(server: ForkServer) -> int:
    return int(ask(server, b"pid"))


def test_one_fork_serves_call_after_call(server: ForkServer) -> None:
    assert ask(server, b"echo x" + b"y" * 10_000_000) == b"x" + b"y" * 10_000_000
    assert pid_of(server) == pid_of(server)


def test_calls_at_the_same_time_have_forks_of_the_same_server(server: ForkServer) -> None:
    with server.forked() as first, server.forked() as second:
        assert first.answer(b"server", PATIENCE) == second.answer(b"server", PATIENCE)


def test_the_number_of_idle_forks_has_a_limit(server: ForkServer) -> None:
    with ThreadPoolExecutor(MAX_IDLE + 2) as threads:
        together = threading.Barrier(MAX_IDLE + 2)

        def call() -> int:
            with server.forked() as forked:
                together.wait(PATIENCE)
                return int(forked.answer(b"pid", PATIENCE))

        pids = {future.result() for future in [threads.submit(call) for _ in range(MAX_IDLE + 2)]}
    assert len(pids) == MAX_IDLE + 2
    assert len(server._idle) == MAX_IDLE


def test_a_call_that_takes_too_long_is_killed_and_the_next_one_answered(server: ForkServer) -> None:
    pid = pid_of(server)
    with pytest.raises(ChildTimeout):
        ask(server, b"sleep 1000", 0.1)
    wait_until_gone(pid)
    assert pid_of(server) != pid


def test_a_call_can_be_stopped_from_another_thread(server: ForkServer) -> None:
    pid = pid_of(server)
    with ThreadPoolExecutor(1) as threads, server.forked() as forked:
        answer = threads.submit(forked.answer, b"sleep 1000", 1000.0)
        forked.stop()
        with pytest.raises(ChildDied):
            answer.result(PATIENCE)
    wait_until_gone(pid)
    assert ask(server, b"echo x") == b"x"


def test_a_block_without_an_answer_ends_its_fork(server: ForkServer) -> None:
    pid = pid_of(server)
    with server.forked():
        pass
    wait_until_gone(pid)


def test_an_idle_fork_that_was_killed_is_not_called(server: ForkServer) -> None:
    os.kill(pid_of(server), signal.SIGKILL)
    (idle,) = server._idle
    # Its threads end one after the other, and the last one closes the connection.
    assert select.select([idle], [], [], PATIENCE)[0]
    assert ask(server, b"echo x") == b"x"


def test_a_server_that_was_killed_is_replaced(server: ForkServer) -> None:
    dead = int(ask(server, b"server"))
    os.kill(dead, signal.SIGKILL)
    with pytest.raises(ChildDied):
        ask(server, b"exit 1")
    assert int(ask(server, b"server")) != dead


def test_an_exception_is_named_and_ends_the_fork(server: ForkServer) -> None:
    pid = pid_of(server)
    with pytest.raises(ChildDied, match="ValueError"):
        ask(server, b"nonsense")
    assert pid_of(server) != pid


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts address space")
def test_memory_is_limited(server: ForkServer) -> None:
    assert ask(server, b"allocate %d" % (MEMORY_BYTES // 4)) == b"%d" % (MEMORY_BYTES // 4)
    with pytest.raises(ChildDied, match="MemoryError"):
        ask(server, b"allocate %d" % (MEMORY_BYTES * 2))


def test_a_fork_that_takes_cpu_time_gets_nicer_and_ends_after_its_answer(server: ForkServer) -> None:
    usual, pid = os.getpriority(os.PRIO_PROCESS, 0), pid_of(server)
    assert int(ask(server, b"burn 0.5")) == min(19, usual + NICENESS[-1][1])
    wait_until_gone(pid)
    assert int(ask(server, b"burn 0")) == usual


def test_quick_calls_do_not_add_up_to_a_slow_one(server: ForkServer) -> None:
    pid = pid_of(server)
    for _ in range(10):
        ask(server, b"burn 0.02")
    assert pid_of(server) == pid


def test_close_kills_running_calls_and_refuses_later_ones(server: ForkServer) -> None:
    ours = int(ask(server, b"server"))
    with server.forked() as forked, ThreadPoolExecutor(1) as threads:
        pid = int(forked.answer(b"pid", PATIENCE))
        waiting = threads.submit(forked.answer, b"sleep 1000", 1000.0)
        server.close()
        with pytest.raises(ChildDied):
            waiting.result(PATIENCE)
    wait_until_gone(pid)
    wait_until_gone(ours)
    with pytest.raises(ChildNotStarted):
        ask(server, b"echo x")


def test_a_server_that_cannot_start_is_an_error_and_not_a_hang() -> None:
    server = ForkServer("tests.svclib.no_such_module")
    for _ in range(2):
        with pytest.raises(ChildNotStarted):
            ask(server, b"echo x")
    server.close()


def test_forks_end_with_the_process_that_called_them_even_while_they_work() -> None:
    program = (
        "from svclib.fork_server import ForkServer\n"
        "server = ForkServer('tests.svclib.fork_child')\n"
        "with server.forked() as one, server.forked() as other:\n"
        "    print(one.answer(b'pid', 30).decode(), one.answer(b'server', 30).decode(), flush=True)\n"
        "    other.answer(b'sleep 1000', 1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        forks = [child.pid for child in psutil.Process(pids[1]).children()]
        parent.kill()
    assert len(forks) == 2
    for pid in (*pids, *forks):
        wait_until_gone(pid)


def test_no_thread_no_file_and_no_zombie_is_left_behind(server: ForkServer) -> None:
    ours = psutil.Process(int(ask(server, b"server")))
    threads, files = threading.active_count(), psutil.Process().num_fds()
    for _ in range(3):
        with pytest.raises(ChildTimeout):
            ask(server, b"sleep 1000", 0.05)
    pid = pid_of(server)
    assert threading.active_count() <= threads
    assert psutil.Process().num_fds() <= files
    for child in ours.children():
        assert child.pid == pid or not child.is_running() or child.status() != psutil.STATUS_ZOMBIE
