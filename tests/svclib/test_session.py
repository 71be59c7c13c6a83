from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protos.v1 import detokenizer_pb2 as pb
from svclib.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    Overloaded,
    PeerLost,
    ServiceError,
    Unavailable,
)
from svclib.session import SessionLimits, SessionServer
from svclib.session.limits import DEFAULT_LIMITS
from tests.svclib.pipe import FormatCall, Peers, content, opening, request, settle, text_of

Handling = Callable[[FormatCall], Awaitable[None]]


def peers(handler: Handling, limits: SessionLimits = DEFAULT_LIMITS, **options: int) -> Peers:
    return Peers(SessionServer(handler, pb.DetokenizerServerFrame, limits=limits, **options), limits)


async def echo(call: FormatCall) -> None:
    """Answers each input with one letter per token, until an input has a finish reason."""
    async for message in call:
        call.emit(content("".join(chr(97 + token) for token in message.token_ids)))
        if message.finish_reason:
            return


async def wait_for_ever(call: FormatCall) -> None:
    await asyncio.Event().wait()


async def test_events_arrive_in_order_and_iteration_ends() -> None:
    async def handler(call: FormatCall) -> None:
        for letter in "abc":
            call.emit(content(letter))
            await settle()

    async with peers(handler).client.open(request(), opening()) as stream:
        assert [text_of(event) async for event in stream] == ["a", "b", "c"]


async def test_inputs_reach_the_handler() -> None:
    both = peers(echo)
    async with both.client.open(request(), opening()) as stream:
        stream.send(pb.FormatInput(token_ids=[0]))
        assert text_of(await anext(stream)) == "a"
        stream.send(pb.FormatInput(token_ids=[1], finish_reason="stop"))
        assert "".join([text_of(event) async for event in stream]) == "b"
    assert both.client.num_open == both.server.num_open == 0


async def test_inputs_sent_at_once_are_one_message() -> None:
    seen: list[list[int]] = []

    async def handler(call: FormatCall) -> None:
        async for message in call:
            seen.append(list(message.token_ids))
            if message.finish_reason:
                return

    async with peers(handler).client.open(request(), opening()) as stream:
        for token in range(5):
            stream.send(pb.FormatInput(token_ids=[token]))
        stream.send(pb.FormatInput(finish_reason="stop"))
        assert [event async for event in stream] == []
    assert seen == [[0, 1, 2, 3, 4]]


async def test_a_slow_reader_gets_merged_events() -> None:
    async def handler(call: FormatCall) -> None:
        for number in range(1000):
            call.emit(content(chr(97 + number % 26)))
            await asyncio.sleep(0)

    async with peers(handler).client.open(request(), opening()) as stream:
        while not stream._inbox.ended:  # noqa: ASYNC110  # the reader is to be slower than all of it
            await asyncio.sleep(0.01)
        events = [event async for event in stream]
    assert len(events) == 1
    assert text_of(events[0]) == "".join(chr(97 + number % 26) for number in range(1000))


async def test_an_empty_event_is_still_an_event() -> None:
    async def handler(call: FormatCall) -> None:
        call.emit(pb.FormatEvent())

    async with peers(handler).client.open(request(), opening()) as stream:
        assert [event async for event in stream] == [pb.FormatEvent()]


async def test_events_of_many_requests_share_a_frame() -> None:
    gate = asyncio.Event()

    async def handler(call: FormatCall) -> None:
        await gate.wait()
        call.emit(content(call.request.request_id))

    both = peers(handler)

    async def one(name: str) -> str:
        async with both.client.open(request(name), opening(name)) as stream:
            return "".join([text_of(event) async for event in stream])

    tasks = [asyncio.create_task(one(str(number))) for number in range(100)]
    await settle()
    gate.set()
    assert await asyncio.gather(*tasks) == [str(number) for number in range(100)]
    assert len(both.pipes[0].frames) <= 3


async def test_a_service_error_keeps_its_message_and_parameter() -> None:
    async def handler(call: FormatCall) -> None:
        raise InvalidRequest("no such parser", param="tool_parser", retry_after=2.5)

    async with peers(handler).client.open(request(), opening()) as stream:
        with pytest.raises(InvalidRequest, match="no such parser") as caught:
            await anext(stream)
    assert (caught.value.param, caught.value.retry_after) == ("tool_parser", 2.5)


async def test_any_other_exception_is_sent_as_internal_error() -> None:
    async def handler(call: FormatCall) -> None:
        raise RuntimeError("the secret of the house")

    async with peers(handler).client.open(request(), opening()) as stream:
        with pytest.raises(InternalError, match=r"^internal error$"):
            await anext(stream)


async def test_a_cancelled_await_in_a_handler_is_an_internal_error() -> None:
    async def handler(call: FormatCall) -> None:
        work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.cancel()
        await work

    both = peers(handler)
    async with both.client.open(request(), opening()) as stream, asyncio.timeout(5):
        with pytest.raises(InternalError):
            await anext(stream)
    assert both.server.num_open == 0


async def test_events_before_a_failure_are_not_lost() -> None:
    async def handler(call: FormatCall) -> None:
        call.emit(content("before"))
        raise InvalidRequest("after")

    async with peers(handler).client.open(request(), opening()) as stream:
        assert text_of(await anext(stream)) == "before"
        with pytest.raises(InvalidRequest):
            await anext(stream)


async def test_leaving_early_cancels_the_handler() -> None:
    ended = asyncio.Event()

    async def handler(call: FormatCall) -> None:
        try:
            call.emit(content("x"))
            await asyncio.Event().wait()
        finally:
            ended.set()

    both = peers(handler)
    async with both.client.open(request(), opening()) as stream:
        await anext(stream)
    await asyncio.wait_for(ended.wait(), 5)
    await settle()
    assert both.server.num_open == both.client.num_open == 0


async def test_leaving_by_an_exception_cancels_too() -> None:
    both = peers(wait_for_ever)
    with pytest.raises(ValueError, match="mine"):
        async with both.client.open(request(), opening()):
            await settle()
            assert both.server.num_open == 1
            raise ValueError("mine")
    await settle()
    assert both.server.num_open == 0


async def test_a_cancelled_reader_cancels_too() -> None:
    both = peers(wait_for_ever)

    async def read() -> None:
        async with both.client.open(request(), opening()) as stream:
            await anext(stream)

    task = asyncio.create_task(read())
    await settle()
    assert both.server.num_open == 1
    task.cancel()
    await settle()
    assert both.server.num_open == 0


async def test_a_finished_request_sends_no_cancel() -> None:
    cancelled = []

    async def handler(call: FormatCall) -> None:
        try:
            call.emit(content("x"))
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    both = peers(handler)
    async with both.client.open(request(), opening()) as stream:
        assert len([event async for event in stream]) == 1
    assert both.client._connection is not None
    assert both.client._connection.outbox._frames == []
    assert cancelled == []


async def test_a_lost_peer_ends_every_open_request() -> None:
    async def handler(call: FormatCall) -> None:
        call.emit(content("x"))
        await asyncio.Event().wait()

    both = peers(handler)

    async def read() -> None:
        async with both.client.open(request(), opening()) as stream:
            async for _event in stream:
                pass

    tasks = [asyncio.create_task(read()) for _ in range(10)]
    await settle()
    both.pipes[0].cut()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [PeerLost] * 10
    assert both.server.num_open == 0


async def test_after_a_loss_the_next_request_connects_again() -> None:
    both = peers(echo)
    async with both.client.open(request(), opening()) as stream:
        stream.send(pb.FormatInput(token_ids=[0]))
        await anext(stream)
        both.pipes[0].cut()
        with pytest.raises(PeerLost):
            await anext(stream)
        stream.send(pb.FormatInput(token_ids=[1]))
    async with both.client.open(request(), opening()) as stream:
        stream.send(pb.FormatInput(token_ids=[2], finish_reason="stop"))
        assert [text_of(event) async for event in stream] == ["c"]
    assert len(both.pipes) == 2


async def test_a_peer_that_was_never_there_is_unavailable_not_lost() -> None:
    both = peers(wait_for_ever)
    async with both.client.open(request(), opening()) as stream:
        both.pipes[0].cut()
        with pytest.raises(Unavailable) as caught:
            await anext(stream)
    assert type(caught.value) is Unavailable


async def test_the_deadline_ends_both_sides() -> None:
    ended = asyncio.Event()

    async def handler(call: FormatCall) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    both = peers(handler)
    async with both.client.open(request(), opening(timeout=0.05)) as stream:
        with pytest.raises(DeadlineExceeded):
            await anext(stream)
    await asyncio.wait_for(ended.wait(), 5)
    await settle()
    assert both.server.num_open == both.client.num_open == 0


async def test_a_deadline_that_is_met_leaves_nothing_behind() -> None:
    both = peers(echo)
    async with both.client.open(request(), opening(timeout=0.05)) as stream:
        stream.send(pb.FormatInput(token_ids=[0], finish_reason="stop"))
        assert [text_of(event) async for event in stream] == ["a"]
    await asyncio.sleep(0.1)
    assert both.client.num_open == 0


async def test_the_opening_reaches_the_handler() -> None:
    seen = []

    async def handler(call: FormatCall) -> None:
        seen.append((call.opening.request_id, call.opening.timeout, call.opening.traceparent, call.request.request_id))

    both = peers(handler)
    async with both.client.open(request("inner"), opening("outer", 9.0)) as stream:
        assert [event async for event in stream] == []
    assert seen == [("outer", 9.0, "", "inner")]


async def test_too_many_requests_are_refused_and_the_others_go_on() -> None:
    both = peers(wait_for_ever, max_open_requests=2)
    async with (
        both.client.open(request(), opening()),
        both.client.open(request(), opening()),
        both.client.open(request(), opening()) as third,
    ):
        with pytest.raises(Overloaded):
            await anext(third)
        assert both.server.num_open == 2


async def test_draining_refuses_new_requests_and_waits_for_the_running() -> None:
    both = peers(echo)
    async with both.client.open(request(), opening()) as running:
        await settle()
        draining = asyncio.create_task(both.server.drain())
        await settle()
        async with both.client.open(request(), opening()) as late:
            with pytest.raises(Unavailable, match="shutting down"):
                await anext(late)
        assert not draining.done()
        running.send(pb.FormatInput(token_ids=[0], finish_reason="stop"))
        assert [text_of(event) async for event in running] == ["a"]
    await asyncio.wait_for(draining, 5)


async def test_an_entry_id_used_twice_ends_the_session() -> None:
    async def frames():
        frame = pb.DetokenizerClientFrame()
        for _ in range(2):
            entry = frame.entries.add(id=1)
            entry.open.SetInParent()
        yield frame
        await asyncio.Event().wait()

    server = SessionServer(wait_for_ever, pb.DetokenizerServerFrame)
    with pytest.raises(InvalidRequest, match="twice"):
        async for _frame in server.serve(frames()):
            pass
    await settle()
    assert server.num_open == 0


async def test_entries_of_unknown_requests_are_dropped() -> None:
    async def frames():
        frame = pb.DetokenizerClientFrame()
        frame.entries.add(id=7).cancel.SetInParent()
        frame.entries.add(id=8).input.SetInParent()
        frame.entries.add(id=9)
        frame.entries.add(id=1).open.SetInParent()
        yield frame
        await settle()

    async def handler(call: FormatCall) -> None:
        call.emit(content("fine"))

    server = SessionServer(handler, pb.DetokenizerServerFrame)
    answers = [frame async for frame in server.serve(frames())]
    assert [entry.WhichOneof("body") for frame in answers for entry in frame.entries] == ["event", "end"]


async def test_closing_the_client_ends_its_requests() -> None:
    both = peers(wait_for_ever)
    async with both.client.open(request(), opening()) as stream:
        await settle()
        await both.client.close()
        with pytest.raises(ServiceError):
            await anext(stream)
    await settle()
    assert both.server.num_open == 0


async def test_large_requests_are_spread_over_frames() -> None:
    both = peers(wait_for_ever)
    big = pb.FormatRequest(request_id="x" * 3_000_000)
    async with both.client.open(big, opening()), both.client.open(big, opening()), both.client.open(big, opening()):
        assert both.client._connection is not None
        sizes = [frame.ByteSize() for frame in both.client._connection.outbox._frames]
        await settle()
        assert both.server.num_open == 3
    assert len(sizes) >= 2
    assert max(sizes) < 10_000_000


async def test_the_backlog_of_a_slow_reader_is_spread_over_frames() -> None:
    """A single frame would exceed the transport's message limit and end the whole session."""
    megabyte = "x" * 1_000_000

    async def handler(call: FormatCall) -> None:
        for _ in range(20):
            call.emit(content(megabyte))

    both = peers(handler)
    async with both.client.open(request("1"), opening()) as one, both.client.open(request("2"), opening()) as two:
        for stream in (one, two):
            assert sum([len(text_of(event)) async for event in stream]) == 20_000_000
    assert len(both.pipes[0].sizes) >= 8
    assert max(both.pipes[0].sizes) < 10_000_000


FEW = SessionLimits(waiting=2_000, waiting_in_all=6_000, unsent=4_000)


async def flood(call: FormatCall) -> None:
    """Emits more than may wait."""
    for _ in range(1_000):
        call.emit(content("x" * 100))
        await asyncio.sleep(0)
    await asyncio.Event().wait()


async def test_a_reader_that_stops_ends_its_request_and_no_other() -> None:
    async def handler(call: FormatCall) -> None:
        await (flood if call.request.request_id == "slow" else echo)(call)

    both = peers(handler, FEW)
    async with both.client.open(request("good"), opening("good")) as good:
        async with both.client.open(request("slow"), opening("slow")) as slow:
            await settle(200)
            assert both.server.num_open == 1
            with pytest.raises(Overloaded, match="2000 bytes"):
                await anext(slow)
        good.send(pb.FormatInput(token_ids=[0], finish_reason="stop"))
        assert [text_of(event) async for event in good] == ["a"]
    assert both.client._allowance.num_bytes == 0


async def test_a_reader_that_keeps_up_has_no_limit() -> None:
    async def handler(call: FormatCall) -> None:
        for _ in range(1_000):
            call.emit(content("x" * 100))
            await settle(3)

    async with peers(handler, FEW).client.open(request(), opening()) as stream:
        assert sum([len(text_of(event)) async for event in stream]) == 100_000


async def test_a_handler_that_does_not_read_is_cancelled() -> None:
    both = peers(wait_for_ever, FEW)
    async with both.client.open(request(), opening()) as stream:
        for _ in range(100):
            stream.send(pb.FormatInput(token_ids=range(100)))
            await settle(5)
        with pytest.raises(Overloaded, match="2000 bytes"):
            await anext(stream)
    assert both.server.num_open == both.client.num_open == 0


async def test_a_client_that_reads_nothing_loses_its_session() -> None:
    both = peers(flood, FEW)
    async with both.client.open(request(), opening()) as stream:
        await settle()
        both.pipes[0].client_reads.clear()
        await settle(200)
        assert both.server.num_open == 0
        both.pipes[0].client_reads.set()
        with pytest.raises(PeerLost):
            async for _event in stream:
                pass


async def test_a_server_that_reads_nothing_is_lost() -> None:
    both = peers(wait_for_ever, FEW)
    async with both.client.open(request(), opening()) as stream:
        await settle()
        both.pipes[0].server_reads.clear()
        for _ in range(100):
            stream.send(pb.FormatInput(token_ids=range(100)))
            await settle(1)
        with pytest.raises(ServiceError) as caught:
            await anext(stream)
        assert isinstance(caught.value, Unavailable)
    await settle()
    assert both.server.num_open == both.client.num_open == 0
