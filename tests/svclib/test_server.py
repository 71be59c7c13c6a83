from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from protos.v1 import detokenizer_pb2 as pb
from protos.v1 import detokenizer_pb2_grpc as pb_grpc
from svclib.channel import connect
from svclib.errors import InternalError, InvalidRequest, PeerLost, Unavailable
from svclib.session import SessionClient
from svclib.status import from_rpc_error
from tests.svclib.pipe import FormatClient, opening, request, text_of

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Process:
    """A running service and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def wait_for(self, event: str) -> dict[str, Any]:
        """The first log line with this event."""
        assert self.process.stderr is not None
        async with asyncio.timeout(20):
            while line := (await self.process.stderr.readline()).decode():
                self.lines.append(line)
                if line.startswith("{") and json.loads(line)["event"] == event:
                    found: dict[str, Any] = json.loads(line)
                    return found
        raise AssertionError(f"ended without {event!r}: {self.lines}")

    async def end(self) -> int:
        async with asyncio.timeout(20):
            assert self.process.stderr is not None
            self.lines += (await self.process.stderr.read()).decode().splitlines()
            return await self.process.wait()


@asynccontextmanager
async def service(*flags: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.svclib.echo_service", *flags, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def has_ipv6() -> bool:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


async def health(channel: grpc.aio.Channel, name: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=name), wait_for_ready=True)).status)


def client(channel: grpc.aio.Channel) -> FormatClient:
    return SessionClient(pb_grpc.DetokenizerStub(channel).Session, pb.DetokenizerClientFrame, peer="detokenizer")


async def test_serves_sessions_and_drains_on_sigterm() -> None:
    async with service() as running, connect((await running.wait_for("started"))["address"]) as channel:
        await running.wait_for("serving")
        assert await health(channel) == await health(channel, "pellucid.v1.Detokenizer") == SERVING
        async with client(channel).open(request(), opening()) as stream:
            stream.send(pb.FormatInput(token_ids=[0]))
            assert text_of(await anext(stream)) == "a"
            running.process.send_signal(signal.SIGTERM)
            await running.wait_for("draining")
            assert await health(channel) == NOT_SERVING
            stream.send(pb.FormatInput(token_ids=[1], finish_reason="stop"))
            assert [text_of(event) async for event in stream] == ["b"]
        assert await running.end() == 0
        assert "released" in running.lines


async def test_drain_time_is_limited() -> None:
    async with (
        service("--drain-seconds", "0.2") as running,
        connect((await running.wait_for("started"))["address"]) as channel,
    ):
        await running.wait_for("serving")
        async with client(channel).open(request(), opening()) as stream:
            stream.send(pb.FormatInput(token_ids=[0]))
            await anext(stream)
            running.process.send_signal(signal.SIGTERM)
            with pytest.raises(PeerLost):
                await anext(stream)
        assert await running.end() == 0


async def test_is_not_serving_while_it_starts() -> None:
    async with (
        service("--start-seconds", "60") as running,
        connect((await running.wait_for("started"))["address"]) as channel,
    ):
        assert await health(channel) == NOT_SERVING
        async with client(channel).open(request(), opening()) as stream:
            with pytest.raises(Unavailable):
                await anext(stream)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pb_grpc.DetokenizerStub(channel).GetInfo(pb.DetokenizerInfoRequest())
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0


@pytest.mark.parametrize(("kind", "code"), [("setting", 2), ("fault", 1)])
async def test_a_failed_start_has_its_exit_code(kind: str, code: int) -> None:
    async with service("--start-error", kind) as running:
        await running.wait_for("cannot start")
        assert await running.end() == code


async def test_a_port_in_use_is_a_clear_error() -> None:
    async with service() as first:
        address = (await first.wait_for("started"))["address"]
        async with service("--port", address.rpartition(":")[2]) as second:
            assert address.rpartition(":")[2] in (await second.wait_for("cannot listen"))["error"]
            assert await second.end() == 1


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_an_ipv6_host() -> None:
    async with service("--host", "::1") as running, connect((await running.wait_for("started"))["address"]) as channel:
        await running.wait_for("serving")
        assert await health(channel) == SERVING


async def test_killing_it_loses_the_session_at_once() -> None:
    async with service() as running, connect((await running.wait_for("started"))["address"]) as channel:
        await running.wait_for("serving")
        async with client(channel).open(request(), opening()) as stream:
            stream.send(pb.FormatInput(token_ids=[0]))
            await anext(stream)
            running.process.kill()
            async with asyncio.timeout(5):
                with pytest.raises(PeerLost):
                    await anext(stream)


async def test_an_exception_ends_one_request_and_is_logged_but_not_sent() -> None:
    async with service() as running, connect((await running.wait_for("started"))["address"]) as channel:
        await running.wait_for("serving")
        sessions = client(channel)
        async with sessions.open(request(), opening("good")) as good, sessions.open(request(), opening("bad")) as bad:
            bad.send(pb.FormatInput(token_ids=[99]))
            with pytest.raises(InternalError, match=r"^internal error$"):
                await anext(bad)
            good.send(pb.FormatInput(token_ids=[0], finish_reason="stop"))
            assert [text_of(event) async for event in good] == ["a"]
        line = await running.wait_for("request failed")
        assert line["request_id"] == "bad"
        assert "the secret of the house" in line["exception"]


async def test_a_unary_error_keeps_class_parameter_and_retry_hint() -> None:
    async with service() as running, connect((await running.wait_for("started"))["address"]) as channel:
        await running.wait_for("serving")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pb_grpc.DetokenizerStub(channel).GetInfo(pb.DetokenizerInfoRequest())
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        error = from_rpc_error(caught.value, peer="echo")
        assert type(error) is InvalidRequest
        assert (error.message, error.param, error.retry_after) == (
            "not implemented",
            "the_field",
            3.0,
        )


async def test_reflection_and_metrics() -> None:
    async with service() as running:
        started = await running.wait_for("started")
        async with connect(started["address"]) as channel:
            await running.wait_for("serving")
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
            answer = await anext(aiter(call))
            names = {listed.name for listed in answer.list_services_response.service}
            assert {"pellucid.v1.Detokenizer", "grpc.health.v1.Health"} <= names
        fetch: Callable[[str], Any] = urllib.request.urlopen
        url = f"http://127.0.0.1:{started['metrics_port']}/metrics"
        body = (await asyncio.to_thread(fetch, url)).read().decode()
        assert "echo_starts_total 1.0" in body


async def watch_until_it_ends(channel: grpc.aio.Channel, seen: asyncio.Event) -> list[int]:
    statuses = []
    async for answer in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True):
        statuses.append(int(answer.status))
        seen.set()
    return statuses


async def test_a_failed_start_ends_health_watches_without_a_traceback() -> None:
    """A ``Watch`` that the stopping server cancels would make gRPC print a traceback after the reason."""
    flags = ("--start-error", "setting", "--start-seconds", "1")
    seen = asyncio.Event()
    async with service(*flags) as running, connect((await running.wait_for("started"))["address"]) as channel:
        watching = asyncio.create_task(watch_until_it_ends(channel, seen))
        await asyncio.wait_for(seen.wait(), 20)
        await running.wait_for("cannot start")
        assert await running.end() == 2
        assert await watching == [NOT_SERVING]
        assert "Traceback" not in "".join(running.lines)


async def test_shutdown_with_an_open_session_prints_no_traceback() -> None:
    async with service() as running, connect((await running.wait_for("started"))["address"]) as channel:
        await running.wait_for("serving")
        seen = asyncio.Event()
        watching = asyncio.create_task(watch_until_it_ends(channel, seen))
        await asyncio.wait_for(seen.wait(), 20)
        session = client(channel)
        async with session.open(request(), opening()) as stream:
            stream.send(pb.FormatInput(token_ids=[0], finish_reason="stop"))
            assert [text_of(event) async for event in stream] == ["a"]
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0
        assert (await watching)[-1] == NOT_SERVING
        assert "Traceback" not in "".join(running.lines)
        await session.close()
