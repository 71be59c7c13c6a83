"""Requests of clients that disconnect free all their resources."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import Any

import pytest

from protos.v1 import engine_pb2, engine_pb2_grpc
from svclib.channel import connect
from tests.stack import Stack


async def loads(stack: Stack) -> engine_pb2.Loads:
    async with connect(f"127.0.0.1:{stack.flag('engine_svc', 'port')}") as channel:
        return await engine_pb2_grpc.EngineStub(channel).GetLoads(engine_pb2.LoadsRequest())


async def idle(stack: Stack) -> engine_pb2.Loads:
    """The load once nothing runs, which must happen within ten seconds."""
    until = time.monotonic() + 10
    while True:
        now = await loads(stack)
        if now.num_running_reqs == now.num_waiting_reqs == 0:
            return now
        assert time.monotonic() < until, now
        await asyncio.sleep(0.05)


async def abandon(stack: Stack, number: int, longest: float) -> None:
    """One request, abandoned at a random moment."""
    chance = random.Random(number)
    ask: dict[str, Any] = {
        "model": stack_model(stack),
        "messages": [{"role": "user", "content": f"{number} " + "word " * chance.choice([1, 50, 400])}],
        "max_tokens": 400,
        "n": chance.choice([1, 1, 1, 3]),
        "stream": chance.random() < 0.7,
        "extra_body": {"ignore_eos": True},
    }
    client = stack.async_client()
    with suppress(TimeoutError):
        async with asyncio.timeout(chance.random() * longest):
            answer = await client.chat.completions.create(**ask)
            if ask["stream"]:
                async for _chunk in answer:
                    pass
    await client.close()


def stack_model(stack: Stack) -> str:
    return stack.flag("gateway", "served-model-name")


@pytest.mark.parametrize(("name", "longest"), [("simulated", 0.3), ("real", 1.5)])
async def test_after_200_abandoned_requests_every_block_is_free(
    name: str, longest: float, request: pytest.FixtureRequest
) -> None:
    stack: Stack = request.getfixturevalue(name)
    count = 200 if name == "simulated" else 40
    before = await idle(stack)
    room = asyncio.Semaphore(32)

    async def one(number: int) -> None:
        async with room:
            await abandon(stack, number, longest)

    await asyncio.gather(*(one(number) for number in range(count)))
    after = await idle(stack)
    assert after.num_free_blocks == before.num_free_blocks == before.num_blocks


async def test_a_disconnect_during_a_long_prefill_frees_its_blocks(real: Stack) -> None:
    before = await idle(real)
    client = real.async_client()
    with suppress(TimeoutError):
        async with asyncio.timeout(0.4):
            await client.chat.completions.create(
                model=stack_model(real),
                messages=[{"role": "user", "content": "many words " * 2500}],
                max_tokens=1,
            )
    await client.close()
    after = await idle(real)
    assert after.num_free_blocks == before.num_free_blocks
