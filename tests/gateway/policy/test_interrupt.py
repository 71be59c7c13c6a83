from __future__ import annotations

import asyncio

import pytest

from gateway.policy.interrupt import Interrupt


class Reason(Exception): ...


async def test_the_block_ends_with_the_error() -> None:
    with pytest.raises(Reason):
        async with Interrupt() as interrupt:
            asyncio.get_running_loop().call_soon(interrupt, Reason())
            await asyncio.sleep(60)
    await asyncio.sleep(0)  # The task is no longer cancelled.


async def test_the_first_call_counts() -> None:
    with pytest.raises(Reason, match="first"):
        async with Interrupt() as interrupt:
            for name in ("first", "second"):
                asyncio.get_running_loop().call_soon(interrupt, Reason(name))
            await asyncio.sleep(60)


async def test_interrupt_reaches_nested_awaits_and_cleanup() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append("yes")

    with pytest.raises(Reason):
        async with Interrupt() as interrupt:
            interrupt.after(0, Reason())
            await work()
    assert cleaned == ["yes"]


async def test_no_effect_outside_the_block() -> None:
    interrupt = Interrupt()
    interrupt(Reason())
    async with interrupt:
        await asyncio.sleep(0)
    interrupt(Reason())
    await asyncio.sleep(0)


async def test_a_block_that_is_left_in_time_is_not_interrupted() -> None:
    async with Interrupt() as interrupt:
        interrupt.after(0.01, Reason())
    await asyncio.sleep(0.02)


async def test_error_of_the_block_wins() -> None:
    with pytest.raises(ValueError, match="own"):
        async with Interrupt() as interrupt:
            interrupt.after(0, Reason())
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise ValueError("own") from None
    await asyncio.sleep(0)


async def test_foreign_cancellation_stays_a_cancellation() -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with Interrupt() as interrupt:
            interrupt.after(60, Reason())
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_interrupt_and_cancellation_is_a_cancellation() -> None:
    interrupt = Interrupt()

    async def work() -> None:
        async with interrupt:
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    interrupt(Reason())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_within_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), Interrupt() as interrupt:
            interrupt.after(60, Reason())
            await asyncio.sleep(60)
    with pytest.raises(Reason):
        async with asyncio.timeout(60), Interrupt() as interrupt:
            interrupt.after(0, Reason())
            await asyncio.sleep(60)
