"""The supervisor with real processes: restart, backoff, giving up, drain order, kill."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from pellucid import supervisor as supervisor_module
from pellucid.backoff import BackoffPolicy
from pellucid.supervisor import EXIT_BAD_SETTINGS, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_STOPPED, Service, Supervisor
from tests.pellucid.children import Programs, Recorder, immediately, is_alive, service

QUICK = BackoffPolicy(first=0.01, cap=0.04, reset_after=60.0)


@asynccontextmanager
async def supervised(services: Sequence[Service]) -> AsyncIterator[tuple[Supervisor, Recorder, asyncio.Task[int]]]:
    """A running supervisor, killed at the end if it still runs."""
    recorder = Recorder()
    supervisor = Supervisor(services, recorder, QUICK)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, recorder, running
    finally:
        supervisor.stop()
        supervisor.stop()
        await running
    assert not any(is_alive(pid) for pids in recorder.pids.values() for pid in pids)


async def test_all_services_start_and_are_reported_ready(programs: Programs) -> None:
    names = [programs.write("front"), programs.write("back")]
    async with supervised([service(name) for name in names]) as (_, recorder, _running):
        await recorder.saw("line", "front", "up")
        await recorder.saw("line", "back", "up")
        await recorder.saw("all ready")
        assert all(is_alive(recorder.pids[name][0]) for name in names)


async def test_the_stack_is_not_ready_until_every_service_is(programs: Programs) -> None:
    names = [programs.write("front"), programs.write("back")]
    async with supervised([service(names[0]), service(names[1], ready=False)]) as (_, recorder, _running):
        await recorder.saw("line", "back", "up")
        assert ("ready", "front") in recorder.events
        assert ("all ready",) not in recorder.events


async def test_a_killed_service_restarts_and_the_others_keep_running(programs: Programs) -> None:
    services = [service(programs.write(name)) for name in ("front", "back")]
    async with supervised(services) as (_, recorder, _running):
        await recorder.saw("line", "front", "up")
        await recorder.saw("line", "back", "up")
        for times in (2, 3):
            os.kill(recorder.pids["back"][-1], signal.SIGKILL)
            await recorder.saw("line", "back", "up", times=times)
        assert len(recorder.pids["back"]) == 3
        assert len(recorder.pids["front"]) == 1
        assert recorder.events.count(("ready", "back")) == 3
        assert recorder.events.count(("all ready",)) == 1
        assert ("ended", "back", "was killed by SIGKILL", "again in 0.01") in recorder.events


async def test_a_service_that_exits_with_0_restarts(programs: Programs) -> None:
    async with supervised([service(programs.write("back"))]) as (_, recorder, _running):
        await recorder.saw("line", "back", "up")
        os.kill(recorder.pids["back"][0], signal.SIGTERM)
        await recorder.saw("ended", "back", "exited with code 0", "again in 0.01")
        await recorder.saw("line", "back", "up", times=2)


async def test_delays_grow_while_a_service_that_was_ready_keeps_failing(programs: Programs) -> None:
    programs.write("back", "print('up')")
    async with supervised([service("back")]) as (_, recorder, running):
        await recorder.saw("line", "back", "up", times=6)
        assert not running.done()
        delays = [event[3] for event in recorder.events if event[0] == "ended"]
        assert delays[:4] == ["again in 0.01", "again in 0.02", "again in 0.04", "again in 0.04"]


async def test_an_invalid_setting_stops_the_stack_without_a_restart(programs: Programs) -> None:
    programs.write("back", "import sys; print('unknown setting X', file=sys.stderr); sys.exit(2)")
    services = [service(programs.write("front")), service("back", ready=False)]
    async with supervised(services) as (_, recorder, running):
        assert await running == EXIT_BAD_SETTINGS
        assert len(recorder.pids["back"]) == 1
        assert ("gave up", "back", "invalid setting", "unknown setting X") in recorder.events
        assert ("ended", "back", "exited with code 2", "for good") in recorder.events


async def test_a_service_that_fails_three_times_before_ready_stops_the_stack(programs: Programs) -> None:
    programs.write("back", "raise OSError('no such model')")
    async with supervised([service("back", ready=False)]) as (_, recorder, running):
        assert await running == EXIT_FAILED
        assert len(recorder.pids["back"]) == 3
        gave_up = recorder.events[-1]
        assert gave_up[:3] == ("gave up", "back", "failed 3 times before becoming ready")
        assert gave_up[-1] == "OSError: no such model"


async def test_the_service_that_takes_clients_stops_first(programs: Programs) -> None:
    services = [service(programs.write(n), takes_clients=n == "front") for n in ("back_a", "front", "back_b")]
    async with supervised(services) as (supervisor, recorder, running):
        for one in services:
            await recorder.saw("line", one.name, "up")
        supervisor.stop()
        assert await running == EXIT_STOPPED
        order = [event for event in recorder.events if event[0] == "draining" or event[-1] == "ended in order"]
        assert order[:2] == [("draining", "front"), ("line", "front", "ended in order")]
        assert order[2] == ("draining", "back_a", "back_b")
        assert len(order) == 5


async def test_nothing_restarts_while_draining(programs: Programs) -> None:
    programs.write(
        "front",
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: print("draining", flush=True))
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
        print("up", flush=True)
        while True:
            time.sleep(60)
        """,
    )
    services = [service("front", takes_clients=True), service(programs.write("back"))]
    async with supervised(services) as (supervisor, recorder, running):
        await recorder.saw("line", "front", "up")
        await recorder.saw("line", "back", "up")
        supervisor.stop()
        await recorder.saw("line", "front", "draining")
        os.kill(recorder.pids["back"][0], signal.SIGKILL)
        os.kill(recorder.pids["front"][0], signal.SIGUSR1)
        assert await running == EXIT_STOPPED
        assert {name: len(pids) for name, pids in recorder.pids.items()} == {"front": 1, "back": 1}


IGNORES_SIGTERM = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
    while True:
        time.sleep(60)
"""


async def test_a_second_stop_kills(programs: Programs) -> None:
    services = [
        service(programs.write(name, IGNORES_SIGTERM), takes_clients=name == "front") for name in ("front", "back")
    ]
    async with supervised(services) as (supervisor, recorder, running):
        await recorder.saw("line", "front", "up")
        await recorder.saw("line", "back", "up")
        supervisor.stop()
        await recorder.saw("draining", "front")
        supervisor.stop()
        assert await running == EXIT_INTERRUPTED


async def test_a_service_that_exceeds_its_stop_time_is_killed(programs: Programs) -> None:
    services = [service(programs.write("back", IGNORES_SIGTERM), stop_seconds=0.1)]
    async with supervised(services) as (supervisor, recorder, running):
        await recorder.saw("line", "back", "up")
        supervisor.stop()
        assert await running == EXIT_STOPPED


async def test_stop_before_run_starts_nothing(programs: Programs) -> None:
    recorder = Recorder()
    supervisor = Supervisor([service(programs.write("back"))], recorder, QUICK)
    supervisor.stop()
    assert await supervisor.run() == EXIT_STOPPED
    assert recorder.pids == {}


async def test_stop_during_backoff_returns_at_once(programs: Programs) -> None:
    programs.write("back", "print('up')")
    recorder = Recorder()
    supervisor = Supervisor([service("back")], recorder, BackoffPolicy(first=3600.0, cap=3600.0))
    running = asyncio.create_task(supervisor.run())
    await recorder.saw("ended", "back", "exited with code 0", "again in 3600")
    supervisor.stop()
    assert await running == EXIT_STOPPED


def hangs_once() -> tuple[asyncio.Event, Callable[[], Awaitable[None]]]:
    """An event, and a liveness probe that reports a hang once after the event is set."""
    hung = asyncio.Event()

    async def hang() -> None:
        await hung.wait()
        hung.clear()

    return hung, hang


async def test_a_hung_service_is_stopped_and_restarted(programs: Programs) -> None:
    hung, hang = hangs_once()
    services = [service(programs.write("front")), service(programs.write("back"), hang=hang)]
    async with supervised(services) as (_, recorder, _running):
        await recorder.saw("line", "back", "up")
        hung.set()
        await recorder.saw("hangs", "back")
        await recorder.saw("line", "back", "ended in order")
        await recorder.saw("line", "back", "up", times=2)
        assert len(recorder.pids["front"]) == 1


async def test_a_hung_service_that_ignores_sigterm_is_killed(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "_HUNG_SECONDS", 0.1)
    hung, hang = hangs_once()
    async with supervised([service(programs.write("back", IGNORES_SIGTERM), hang=hang)]) as (_, recorder, _running):
        await recorder.saw("line", "back", "up")
        hung.set()
        await recorder.saw("ended", "back", "was killed by SIGKILL", "again in 0.01")
        await recorder.saw("line", "back", "up", times=2)


async def test_liveness_is_not_probed_before_readiness(programs: Programs) -> None:
    async with supervised([service(programs.write("back"), ready=False, hang=immediately)]) as (_, recorder, _running):
        await recorder.saw("line", "back", "up")
        await asyncio.sleep(0.2)
        assert ("hangs", "back") not in recorder.events


async def test_liveness_is_not_probed_while_draining(programs: Programs) -> None:
    slow = """
        import signal, sys, time
        def end(*_):
            print("draining", flush=True)
            time.sleep(0.5)
            print("drained", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        print("up", flush=True)
        while True:
            time.sleep(60)
    """
    hung, hang = hangs_once()
    async with supervised([service(programs.write("back", slow), hang=hang)]) as (supervisor, recorder, running):
        await recorder.saw("line", "back", "up")
        supervisor.stop()
        await recorder.saw("line", "back", "draining")
        hung.set()
        assert await running == EXIT_STOPPED
        assert ("line", "back", "drained") in recorder.events
        assert ("hangs", "back") not in recorder.events
