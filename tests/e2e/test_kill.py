"""`kill -9` of any service: requests in flight end with an error, later ones are answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from openai import APIError

from tests.stack import SERVICES, Stack, running_stack

SLOW: dict[str, Any] = {
    "model": "simulated",
    "messages": [{"role": "user", "content": "hi"}],
    "extra_body": {"simulate": {"steps": ["tick "], "repeat": 1_000, "delay_ms": 50}},
    "max_tokens": 5_000,
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running_stack("--model", "simulated") as running:
        yield running


async def stream_until_it_ends(stack: Stack, started: asyncio.Event) -> str:
    """How a stream ended: ``done``, or the name of the exception."""
    async with stack.async_client() as client:
        try:
            async for chunk in await client.chat.completions.create(**SLOW, stream=True):
                if chunk.choices and chunk.choices[0].delta.content:
                    started.set()
        except Exception as error:
            return type(error).__name__
    return "done"


async def answer_until_it_ends(stack: Stack) -> str:
    async with stack.async_client() as client:
        try:
            await client.chat.completions.create(**SLOW)
        except Exception as error:
            return type(error).__name__
    return "done"


def was_replaced(stack: Stack, service: str, old: psutil.Process) -> bool:
    try:
        return stack.process(service).pid != old.pid
    except LookupError:
        return False


async def wait_restarted(stack: Stack, service: str, old: psutil.Process) -> None:
    until = time.monotonic() + 60
    while not (was_replaced(stack, service, old) and await asyncio.to_thread(stack.is_ready)):
        assert time.monotonic() < until, stack.log.read_text()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("service", SERVICES)
async def test_a_killed_service_is_restarted(stack: Stack, service: str) -> None:
    started = asyncio.Event()
    streaming = asyncio.create_task(stream_until_it_ends(stack, started))
    answering = asyncio.create_task(answer_until_it_ends(stack))
    await asyncio.wait_for(started.wait(), 20)
    old = stack.process(service)
    old.kill()
    if service == "tokenizer_svc":
        # It has finished its part of these requests, so they keep running until their clients cancel them.
        await wait_restarted(stack, service, old)
        assert not streaming.done()
        streaming.cancel()
        answering.cancel()
        await asyncio.gather(streaming, answering, return_exceptions=True)
    else:
        ends = await asyncio.wait_for(asyncio.gather(streaming, answering), 20)
        assert "done" not in ends
        await wait_restarted(stack, service, old)
    answer = stack.client().chat.completions.create(
        model="simulated",
        messages=[{"role": "user", "content": "hi"}],
        extra_body={"simulate": {"steps": ["back again"]}},
    )
    assert answer.choices[0].message.content == "back again"


async def test_a_stream_that_loses_its_engine_ends_with_peer_lost(stack: Stack) -> None:
    started = asyncio.Event()

    async def read() -> APIError:
        async with stack.async_client() as client:
            with pytest.raises(APIError) as caught:
                async for chunk in await client.chat.completions.create(**SLOW, stream=True):
                    if chunk.choices and chunk.choices[0].delta.content:
                        started.set()
            return caught.value

    reading = asyncio.create_task(read())
    await asyncio.wait_for(started.wait(), 20)
    old = stack.process("engine_svc")
    old.kill()
    error = await asyncio.wait_for(reading, 20)
    assert error.code == "peer_lost"
    assert "engine" in error.message
    await wait_restarted(stack, "engine_svc", old)
