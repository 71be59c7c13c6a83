"""A session without a network: frames pass directly between a ``SessionClient`` and a ``SessionServer``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from protos.v1 import detokenizer_pb2 as pb
from svclib.session import Call, Opening, SessionClient, SessionLimits, SessionServer
from svclib.session.limits import DEFAULT_LIMITS

FormatClient = SessionClient[pb.FormatRequest, pb.FormatInput, pb.FormatEvent]
FormatCall = Call[pb.FormatRequest, pb.FormatInput, pb.FormatEvent]


class Pipe:
    """Replaces one gRPC call; ``cut`` breaks it as the death of a peer would."""

    def __init__(self, server: SessionServer, frames: AsyncIterator[Any]) -> None:
        self.frames: list[Any] = []
        """Every frame from the server."""
        self.sizes: list[int] = []
        """Size of each in bytes on arrival; the client later merges messages in place."""
        self.client_reads = asyncio.Event()
        self.client_reads.set()
        self.server_reads = asyncio.Event()
        self.server_reads.set()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(server, frames))

    async def _run(self, server: SessionServer, frames: AsyncIterator[Any]) -> None:
        serving = server.serve(_over_the_wire(frames, self.server_reads))
        try:
            async for frame in serving:
                await self.client_reads.wait()
                self._answers.put_nowait(pb.DetokenizerServerFrame.FromString(frame.SerializeToString()))
        finally:
            await serving.aclose()  # type: ignore[attr-defined]
            self._answers.put_nowait(None)

    def __aiter__(self) -> Pipe:
        return self

    async def __anext__(self) -> Any:
        frame = await self._answers.get()
        if frame is None:
            raise StopAsyncIteration
        self.frames.append(frame)
        self.sizes.append(frame.ByteSize())
        return frame

    def cancel(self) -> None:
        self._task.cancel()
        self._answers.put_nowait(None)

    cut = cancel


async def _over_the_wire(frames: AsyncIterator[Any], flowing: asyncio.Event) -> AsyncIterator[Any]:
    async for frame in frames:
        await flowing.wait()
        yield pb.DetokenizerClientFrame.FromString(frame.SerializeToString())


class Peers:
    """A client and a server joined by pipes; a new pipe for each connection."""

    def __init__(self, server: SessionServer, limits: SessionLimits = DEFAULT_LIMITS) -> None:
        self.server = server
        self.pipes: list[Pipe] = []
        self.client: FormatClient = SessionClient(
            self._call, pb.DetokenizerClientFrame, peer="detokenizer", limits=limits
        )

    def _call(self, frames: AsyncIterator[Any]) -> Pipe:
        self.pipes.append(Pipe(self.server, frames))
        return self.pipes[-1]


def opening(request_id: str = "r", timeout: float | None = None) -> Opening:
    return Opening(request_id, timeout)


def request(name: str = "r") -> pb.FormatRequest:
    return pb.FormatRequest(request_id=name)


def content(text: str) -> pb.FormatEvent:
    return pb.FormatEvent(deltas=[pb.Delta(content=text)])


def text_of(event: pb.FormatEvent) -> str:
    return "".join(delta.content for delta in event.deltas)


async def settle(turns: int = 20) -> None:
    """Let everything that can run, run."""
    for _ in range(turns):
        await asyncio.sleep(0)
