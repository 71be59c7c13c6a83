from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protos.v1 import detokenizer_pb2 as pb
from svclib.errors import Overloaded
from svclib.session import outbox as module
from svclib.session.outbox import Outbox
from tests.svclib.pipe import content

ENTRY = 32 + len(content("x" * 100).SerializeToString())
"""Counted bytes of an entry with its message."""


def outbox(max_bytes: int, overflowed: list[int] | None = None) -> Outbox:
    overflows = overflowed if overflowed is not None else []
    return Outbox(pb.DetokenizerServerFrame, "event", max_bytes=max_bytes, on_overflow=lambda: overflows.append(1))


def fill(box: Outbox, count: int, first_id: int = 1) -> None:
    for number in range(count):
        box.merge(first_id + number, content("x" * 100))


async def test_entries_up_to_the_limit_may_wait() -> None:
    overflowed: list[int] = []
    box = outbox(10 * ENTRY, overflowed)
    fill(box, 10)
    box.close()
    frames = [frame async for frame in box.frames()]
    assert sum(len(frame.entries) for frame in frames) == 10
    assert (overflowed, box.num_bytes) == ([], 0)


async def test_after_an_overflow_nothing_is_kept_or_sent() -> None:
    overflowed: list[int] = []
    box = outbox(10 * ENTRY, overflowed)
    fill(box, 11)
    fill(box, 1000, first_id=100)
    box.add(2000).end.SetInParent()
    assert (overflowed, box.num_bytes) == ([1], 0)
    with pytest.raises(Overloaded, match="too slowly"):
        await anext(aiter(box.frames()))


async def test_taking_frames_frees_space() -> None:
    overflowed: list[int] = []
    box = outbox(10 * ENTRY, overflowed)
    frames = aiter(box.frames())
    for first_id in range(0, 1000, 10):
        fill(box, 10, first_id + 1)
        await anext(frames)
    assert (overflowed, box.num_bytes) == ([], 0)


async def test_entries_without_a_message_count() -> None:
    overflowed: list[int] = []
    box = outbox(320, overflowed)
    for number in range(11):
        box.add(number).end.SetInParent()
    assert overflowed == [1]


async def test_entries_soon_after_a_frame_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRAME_SECONDS", 0.05)
    box = outbox(1000 * ENTRY)
    frames = aiter(box.frames())
    fill(box, 1)
    assert len((await anext(frames)).entries) == 1
    next_frame: asyncio.Future[Any] = asyncio.ensure_future(anext(frames))
    for number in range(3):
        fill(box, 1, first_id=10 + number)
        await asyncio.sleep(0)
    assert len((await next_frame).entries) == 3


@pytest.mark.parametrize("hurries", ["first", "full", "last"])
async def test_the_first_frame_a_full_one_and_the_last_do_not_wait(
    hurries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRAME_SECONDS", 3600.0)
    box = outbox(10_000 * ENTRY)
    frames = aiter(box.frames())
    fill(box, 1)
    async with asyncio.timeout(30):
        await anext(frames)
        if hurries == "full":
            fill(box, 1025, first_id=10)
            assert len((await anext(frames)).entries) == 1024
        elif hurries == "last":
            fill(box, 1, first_id=10)
            box.close()
            assert len((await anext(frames)).entries) == 1
