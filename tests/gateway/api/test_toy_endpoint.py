"""An endpoint in one file has all that the others have: limits, errors, streams, disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from gateway.app import ENDPOINTS
from tests.gateway.api.toy import echo_routes
from tests.gateway.running import MODEL, Stack, real_stack, scripted_stack, until
from tests.gateway.scripted import GenerateCall, ScriptedEngine, head, tokens


@asynccontextmanager
async def toy(**settings: Any) -> AsyncIterator[Stack]:
    async with real_stack(endpoints=(*ENDPOINTS, echo_routes), **settings) as stack:
        yield stack


async def echo(stack: Stack, **fields: Any) -> httpx2.Response:
    async with stack.http() as client:
        return await client.post("/v1/echo", json={"model": MODEL} | fields)


@pytest.mark.parametrize("stream", [True, False])
async def test_echo(stream: bool) -> None:
    async with toy() as stack:
        answer = await echo(stack, text="Grüße, 你好", stream=stream)
        assert (answer.status_code, answer.text) == (200, "Grüße, 你好")
        assert ("content-length" in answer.headers) is not stream
        async with stack.http() as client:
            assert "POST /v1/echo" in (await client.get("/v1/echoes")).json()["error"]["message"]
        await until(lambda: stack.gateway.admission.in_use == 0)


async def test_errors_name_its_fields() -> None:
    async with toy() as stack:
        for fields, status, param in (
            ({"text": ""}, 400, "text"),
            ({"text": "x" * 1001}, 400, "text"),
            ({"model": "other", "text": "x"}, 404, "model"),
        ):
            answer = await echo(stack, **fields)
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
        assert (await echo(stack, text="x", mood="good")).headers["x-pellucid-ignored"] == "mood"


async def test_a_prompt_beyond_the_context() -> None:
    async with scripted_stack(endpoints=(*ENDPOINTS, echo_routes)) as stack:
        answer = await echo(stack, text="x" * 500)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, "text", "context_length_exceeded")


async def test_client_disconnect_cancels_the_request() -> None:
    running = asyncio.Event()

    async def forever(call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("a"))
        running.set()
        await asyncio.Event().wait()

    async with scripted_stack(ScriptedEngine(forever), endpoints=(*ENDPOINTS, echo_routes)) as stack:
        body = {"model": MODEL, "text": "a", "stream": True}
        async with stack.http() as client, client.stream("POST", "/v1/echo", json=body):
            await running.wait()
        await stack.until_idle()
