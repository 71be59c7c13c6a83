from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.v1 import detokenizer_pb2 as pb
from svclib.errors import InvalidRequest, Overloaded, PeerLost
from svclib.session.inbox import Allowance, Inbox
from svclib.session.limits import PORTION_BYTES, SessionLimits
from tests.svclib.pipe import content, text_of

ENTRY = len(content("x" * 100).SerializeToString())


def inbox(allowance: Allowance, overflowed: list[str] | None = None, name: str = "") -> Inbox[pb.FormatEvent]:
    calls = overflowed if overflowed is not None else []
    return Inbox(allowance, lambda: calls.append(name))


def fill(box: Inbox[pb.FormatEvent], count: int) -> None:
    for _ in range(count):
        box.put(content("x" * 100))


async def read_all(box: Inbox[pb.FormatEvent]) -> list[pb.FormatEvent]:
    events = []
    try:
        while True:
            events.append(await box.get())
    except StopAsyncIteration:
        return events


async def test_messages_up_to_the_limit_may_wait() -> None:
    allowance = Allowance(SessionLimits(waiting=10 * ENTRY))
    box = inbox(allowance)
    fill(box, 1 + 10)  # the first one is not counted
    assert not box.ended
    assert allowance.num_bytes == 10 * ENTRY
    box.end()
    assert sum(len(text_of(event)) for event in await read_all(box)) == 1100
    assert allowance.num_bytes == 0


async def test_one_message_over_the_limit_ends_the_request() -> None:
    overflowed: list[str] = []
    allowance = Allowance(SessionLimits(waiting=10 * ENTRY))
    box = inbox(allowance, overflowed)
    fill(box, 1 + 10 + 1)
    assert overflowed == [""]
    assert allowance.num_bytes == 0
    fill(box, 100)
    with pytest.raises(Overloaded, match=str(10 * ENTRY)):
        await box.get()
    assert (overflowed, allowance.num_bytes) == ([""], 0)


async def test_reading_frees_the_allowance() -> None:
    box = inbox(Allowance(SessionLimits(waiting=10 * ENTRY)))
    for _ in range(50):
        fill(box, 11)
        await box.get()
    assert not box.ended


async def test_over_the_session_limit_the_largest_request_ends() -> None:
    overflowed: list[str] = []
    allowance = Allowance(SessionLimits(waiting=10 * ENTRY, waiting_in_all=20 * ENTRY))
    boxes = {name: inbox(allowance, overflowed, name) for name in "abc"}
    for name, count in (("a", 6), ("b", 8), ("c", 6)):
        fill(boxes[name], 1 + count)
    assert overflowed == []
    fill(boxes["c"], 1)
    assert overflowed == ["b"]
    assert allowance.num_bytes == 13 * ENTRY
    assert [name for name, box in boxes.items() if box.ended] == ["b"]


async def test_a_complete_answer_that_is_dropped_is_an_error() -> None:
    allowance = Allowance(SessionLimits(waiting=10 * ENTRY, waiting_in_all=10 * ENTRY))
    whole, other = inbox(allowance), inbox(allowance)
    fill(whole, 9)
    whole.end()
    fill(other, 5)
    with pytest.raises(Overloaded):
        await whole.get()


async def test_drop_frees_the_allowance() -> None:
    allowance = Allowance(SessionLimits(waiting=10 * ENTRY))
    box = inbox(allowance)
    fill(box, 8)
    box.drop()
    assert allowance.num_bytes == 0


async def test_a_long_backlog_is_read_in_portions_that_yield_to_other_tasks() -> None:
    box = inbox(Allowance(SessionLimits()))
    fill(box, 20_000)
    box.end()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    events = await read_all(box)
    running.cancel()
    assert sum(len(text_of(event)) for event in events) == 2_000_000
    assert max(event.ByteSize() for event in events) < 2 * PORTION_BYTES
    assert turns >= len(events) - 2


async def test_the_error_comes_after_the_waiting_messages() -> None:
    box = inbox(Allowance(SessionLimits()))
    fill(box, 3)
    box.end(InvalidRequest("no"))
    assert len(text_of(await box.get())) == 300
    with pytest.raises(InvalidRequest):
        await box.get()


logprobs = st.builds(
    lambda token, text: pb.TokenLogProb(sampled=pb.TokenAlternative(token=text, logprob=-float(token))),
    st.integers(0, 9), st.text("ab", max_size=3),
)  # fmt: skip
messages = st.builds(
    lambda text, entries, finish: pb.FormatEvent(
        deltas=[pb.Delta(content=text)], logprobs=entries, finish_reason=finish
    ),
    st.text(max_size=5), st.lists(logprobs, max_size=3), st.sampled_from(["", "stop"]),
)  # fmt: skip


@given(st.lists(messages, min_size=1, max_size=8))
def test_waiting_messages_merge_as_protobuf_merges(given_messages: list[pb.FormatEvent]) -> None:
    merged = pb.FormatEvent()
    for message in given_messages:
        merged.MergeFrom(message)

    async def run() -> pb.FormatEvent:
        box = inbox(Allowance(SessionLimits()))
        for message in given_messages:
            box.put(pb.FormatEvent.FromString(message.SerializeToString()))
        return await box.get()

    assert asyncio.run(run()) == merged


async def test_a_reader_without_a_task() -> None:
    calls: list[str] = []
    box = inbox(Allowance(SessionLimits()))
    assert (box.take(), box.is_over, box.has_more) == (None, False, False)
    box.put(pb.FormatEvent(finish_reason="a"))
    box.watch(lambda: calls.append("update"))
    assert calls == ["update"]
    box.put(pb.FormatEvent(completion_tokens=2))
    box.end(PeerLost("gone"))
    assert calls == ["update"] * 3
    found = box.take()
    assert found is not None
    assert (found.finish_reason, found.completion_tokens) == ("a", 2)
    assert (box.is_over, box.has_more) == (False, True)
    with pytest.raises(PeerLost):
        box.take()


async def test_a_reader_without_a_task_sees_the_end() -> None:
    box = inbox(Allowance(SessionLimits()))
    box.put(pb.FormatEvent())
    box.end()
    assert not box.is_over
    assert box.take() is not None
    assert (box.take(), box.is_over, box.has_more) == (None, True, False)
