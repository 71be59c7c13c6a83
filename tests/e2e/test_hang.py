"""A hung service with open connections. From outside, SIGSTOP looks the same as a blocked event loop."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.test_kill import answer_until_it_ends, stream_until_it_ends, wait_restarted
from tests.stack import SERVICES, Stack, running_stack

BACKENDS = SERVICES[1:]
NAMES = {"tokenizer_svc": "tokenizer", "engine_svc": "engine", "detokenizer_svc": "detokenizer"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running_stack("--model", "simulated", "--hang-seconds", "5") as running:
        yield running


def not_ready_message(stack: Stack) -> str:
    """The error message of ``/ready``; empty if ready."""
    try:
        with urllib.request.urlopen(f"{stack.url}/ready", timeout=5):
            return ""
    except urllib.error.HTTPError as error:
        message: str = json.load(error)["error"]["message"]
        return message


async def until_not_ready(stack: Stack, name: str) -> float:
    """Seconds until ``/ready`` reports the service as not ready."""
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


@pytest.mark.parametrize("service", BACKENDS)
async def test_a_hung_service_is_handled_like_a_dead_one(stack: Stack, service: str) -> None:
    """Not ready within five seconds (three on an idle machine); its requests end; a new process replaces it."""
    started = asyncio.Event()
    streaming = asyncio.create_task(stream_until_it_ends(stack, started))
    answering = asyncio.create_task(answer_until_it_ends(stack))
    await asyncio.wait_for(started.wait(), 20)
    old = stack.process(service)
    old.suspend()
    if service == "tokenizer_svc":
        # It has finished its part of the running requests. The next one waits for it, but not for long.
        streaming.cancel()
        answering.cancel()
        streaming = answering = asyncio.create_task(answer_until_it_ends(stack))
    assert await until_not_ready(stack, NAMES[service]) < 5
    began = time.monotonic()
    assert {await streaming, await answering} <= {"APIError", "InternalServerError"}
    assert time.monotonic() - began < 3
    await wait_restarted(stack, service, old)
    assert f"{NAMES[service]} does not respond; stopping it" in stack.log.read_text()
    assert await ask(stack) == "back again"


async def test_a_service_that_resumes_in_time_is_not_restarted(stack: Stack) -> None:
    old = stack.process("tokenizer_svc")
    old.suspend()
    await until_not_ready(stack, "tokenizer")
    old.resume()
    await asyncio.to_thread(stack.wait_ready)
    assert await ask(stack) == "back again"
    await asyncio.sleep(6)
    assert stack.process("tokenizer_svc").pid == old.pid


async def test_a_hung_gateway_is_restarted(stack: Stack) -> None:
    old = stack.process("gateway")
    old.suspend()
    until = time.monotonic() + 60
    while old.is_running() and old.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until, stack.log.read_text()
        await asyncio.sleep(0.1)
    await wait_restarted(stack, "gateway", old)
    assert await ask(stack) == "back again"
