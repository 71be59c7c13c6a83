from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from engine_svc.offline.interrupts import Interrupts


@pytest.fixture(autouse=True)
def _handler_is_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_waits_for_the_check() -> None:
    with Interrupts() as interrupts:
        interrupts.check()
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()


def test_an_interrupt_is_not_lost_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        interrupt()


def test_a_handler_of_the_program_is_called_instead() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    try:
        with Interrupts() as interrupts:
            interrupt()
            assert seen == []
            interrupts.check()
            assert seen == [signal.SIGINT]
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_interrupts_that_the_program_ignores_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            interrupt()
            interrupts.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_it_does_nothing() -> None:
    faults: list[BaseException] = []

    def enter() -> None:
        try:
            with Interrupts() as interrupts:
                interrupts.check()
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert faults == []
