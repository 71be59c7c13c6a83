"""A service that hangs with its connections open: SIGSTOP is what a loop that does not turn looks like from outside."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.test_kill import answer_until_it_ends, repaired, stream_until_it_ends
from tests.stack import SERVICES, Stack, running_stack

BEHIND = SERVICES[1:]
NAMES = {"tokenizer_svc": "tokenizer", "engine_svc": "engine", "detokenizer_svc": "detokenizer"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running_stack("--model", "simulated", "--hang-seconds", "5") as running:
        yield running


def not_ready_message(stack: Stack) -> str:
    """What ``/ready`` says; empty: it is ready."""
    try:
        with urllib.request.urlopen(f"{stack.url}/ready", timeout=5):
            return ""
    except urllib.error.HTTPError as error:
        message: str = json.load(error)["error"]["message"]
        return message


async def until_not_ready(stack: Stack, name: str) -> float:
    """Seconds until the service is said not to be ready."""
    began = time.monotonic()
    while (message := await asyncio.to_thread(not_ready_message, stack)) != f"not ready: {name}":
        assert message == ""
        assert time.monotonic() < began + 60
        await asyncio.sleep(0.05)
    return time.monotonic() - began


async def ask(stack: Stack) -> str:
    async with stack.async_client() as client:
        answer = await client.chat.completions.create(
            model="simulated",
            messages=[{"role": "user", "content": "hi"}],
            extra_body={"simulate": {"steps": ["back again"]}},
        )
    return answer.choices[0].message.content or ""


@pytest.mark.parametrize("service", BEHIND)
async def test_a_service_that_hangs_is_as_lost_as_one_that_died(stack: Stack, service: str) -> None:
    """Not ready within five seconds (three where nothing else runs); what it held ends; another takes its place."""
    started = asyncio.Event()
    streaming = asyncio.create_task(stream_until_it_ends(stack, started))
    answering = asyncio.create_task(answer_until_it_ends(stack))
    await asyncio.wait_for(started.wait(), 20)
    old = stack.process(service)
    old.suspend()
    if service == "tokenizer_svc":
        # Its work for the running ones was done. The next one waits for it, and not for long.
        streaming.cancel()
        answering.cancel()
        streaming = answering = asyncio.create_task(answer_until_it_ends(stack))
    assert await until_not_ready(stack, NAMES[service]) < 5
    began = time.monotonic()
    assert {await streaming, await answering} <= {"APIError", "InternalServerError"}
    assert time.monotonic() - began < 3
    await repaired(stack, service, old)
    assert f"{NAMES[service]} does not respond; stopping it" in stack.log.read_text()
    assert await ask(stack) == "back again"


async def test_one_that_goes_on_in_time_is_left_alone(stack: Stack) -> None:
    old = stack.process("tokenizer_svc")
    old.suspend()
    await until_not_ready(stack, "tokenizer")
    old.resume()
    await asyncio.to_thread(stack.wait_ready)
    assert await ask(stack) == "back again"
    await asyncio.sleep(6)
    assert stack.process("tokenizer_svc").pid == old.pid


async def test_a_gateway_that_hangs_is_replaced(stack: Stack) -> None:
    old = stack.process("gateway")
    old.suspend()
    until = time.monotonic() + 60
    while old.is_running() and old.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until, stack.log.read_text()
        await asyncio.sleep(0.1)
    await repaired(stack, "gateway", old)
    assert await ask(stack) == "back again"
