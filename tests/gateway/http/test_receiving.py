from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from gateway.http.errors import ClientGone
from gateway.http.receiving import check_json_headers, while_connected
from gateway.policy.interrupt import Interrupt
from svclib.errors import UnsupportedMediaType


def receiving(messages: Sequence[Message]) -> Any:
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    return receive


def piece(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize(
    "value",
    ["application/json", "Application/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8"',
     " application/json ", "application/json; profile=x"],
)  # fmt: skip
def test_json(value: str) -> None:
    check_json_headers(Headers({"content-type": value}))


def test_said_to_be_nothing() -> None:
    check_json_headers(Headers({}))
    with pytest.raises(UnsupportedMediaType):
        check_json_headers(Headers({"content-encoding": "gzip"}))


@pytest.mark.parametrize(
    "headers",
    [{"content-type": ""}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"},
     {"content-type": "application/jsonx"}, {"content-type": "application/json; charset=latin-1"},
     {"content-type": "multipart/form-data; boundary=application/json"},
     {"content-type": "application/json", "content-encoding": "gzip"}],
    ids=str,
)  # fmt: skip
def test_no_json(headers: dict[str, str]) -> None:
    with pytest.raises(UnsupportedMediaType):
        check_json_headers(Headers(headers))


async def test_a_client_that_leaves_afterwards() -> None:
    messages = receiving([piece(b"", False), {"type": "http.disconnect"}])
    with pytest.raises(ClientGone):
        async with Interrupt() as interrupt, while_connected(messages, interrupt):
            await asyncio.sleep(60)


async def test_nobody_watches_any_more_after_the_block() -> None:
    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    left = asyncio.Event()
    async with Interrupt() as interrupt:
        async with while_connected(receive, interrupt):
            pass
        left.set()
        for _ in range(5):
            await asyncio.sleep(0)
