from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission import Admission
from gateway.policy.interrupt import Interrupt
from svclib.errors import InvalidRequest, Overloaded, Unavailable


async def test_at_the_limit_and_one_above() -> None:
    admission = Admission(2)
    with admission.enter(Interrupt()):
        with admission.enter(Interrupt()):
            with pytest.raises(Overloaded) as caught, admission.enter(Interrupt()):
                pass
            assert caught.value.retry_after
            assert admission.in_use == 2
        with admission.enter(Interrupt()):
            pass
    assert admission.in_use == 0


async def test_request_counts_once_per_choice() -> None:
    admission = Admission(4)
    with admission.enter(Interrupt()) as first:
        first.grow(3)
        with admission.enter(Interrupt()) as second:
            with pytest.raises(Overloaded):
                second.grow(2)
            assert admission.in_use == 4
        assert admission.in_use == 3
    assert admission.in_use == 0


async def test_many_choices_leave_room_for_others() -> None:
    admission = Admission(10)
    with admission.enter(Interrupt()) as first, admission.enter(Interrupt()) as second:
        first.grow(4)
        with pytest.raises(Overloaded):
            second.grow(4)
        second.grow(3)
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(admission.enter(Interrupt()))
            assert admission.in_use == admission.limit
    assert admission.in_use == 0


async def test_more_choices_than_the_limit() -> None:
    admission = Admission(4)
    with admission.enter(Interrupt()) as permit:
        permit.grow(4)
    with admission.enter(Interrupt()) as permit, pytest.raises(InvalidRequest) as caught:
        permit.grow(5)
    assert caught.value.param == "n"
    assert admission.in_use == 0


async def test_failed_request_releases_its_permit() -> None:
    admission = Admission(1)
    with pytest.raises(ValueError, match="x"), admission.enter(Interrupt()):
        raise ValueError("x")
    assert admission.in_use == 0


async def test_closed() -> None:
    admission = Admission(1)
    admission.close()
    with pytest.raises(Unavailable), admission.enter(Interrupt()):
        pass


async def test_idle_waits_for_requests_in_flight() -> None:
    admission = Admission(2)
    await admission.idle()
    with admission.enter(Interrupt()):
        waiting = asyncio.create_task(admission.idle())
        with admission.enter(Interrupt()):
            pass
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def test_all_requests_in_flight_can_be_aborted() -> None:
    admission = Admission(3)

    async def work() -> None:
        async with Interrupt() as interrupt:
            with admission.enter(interrupt):
                await asyncio.sleep(60)

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0)
    admission.end_all(Unavailable("over"))
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [Unavailable] * 3
    assert admission.in_use == 0


@given(st.lists(st.integers(1, 5), max_size=20), st.integers(1, 12))
def test_never_more_than_the_limit(sizes: list[int], limit: int) -> None:
    async def run() -> None:
        admission = Admission(limit)
        with ExitStack() as stack:
            for size in sizes:
                with suppress(Overloaded, InvalidRequest):
                    stack.enter_context(admission.enter(Interrupt())).grow(size)
                assert admission.in_use <= limit
        assert admission.in_use == 0

    asyncio.run(run())
