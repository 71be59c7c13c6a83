"""CPU time per token on a session, both ends in one process, by requests per step.

    python -m bench.session

Prints a Markdown table. The figure includes everything from building an event to waking up its reader.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc

from protos.v1 import engine_pb2, engine_pb2_grpc
from svclib.channel import SERVER_OPTIONS, connect
from svclib.session import Call, Opening, SessionClient, SessionServer

GenerateCall: TypeAlias = Call[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]
GenerateClient: TypeAlias = SessionClient[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]

_STEP_SECONDS = 0.003


class Steps(engine_pb2_grpc.EngineServicer):
    """Emits one token per open request and step."""

    def __init__(self, requests: int) -> None:
        self.calls: list[GenerateCall] = []
        self.all_open = asyncio.Event()
        self._requests = requests
        self._sessions = SessionServer(self._wait, engine_pb2.EngineServerFrame)

    async def Session(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: ARG002
        async for frame in self._sessions.serve(request_iterator):
            yield frame

    async def _wait(self, call: GenerateCall) -> None:
        self.calls.append(call)
        if len(self.calls) == self._requests:
            self.all_open.set()
        await asyncio.Event().wait()

    async def play(self, steps: int) -> None:
        """Run the steps, with a pause after each so that the frame is read."""
        for token in range(steps):
            for call in self.calls:
                event = engine_pb2.GenerateEvent()
                event.chunks.add(token_ids=[token])
                call.emit(event)
            await asyncio.sleep(_STEP_SECONDS)


async def measure(requests: int, steps: int) -> float:
    """CPU seconds per token."""
    servicer = Steps(requests)  # type: ignore[abstract]  # the other RPCs are not called
    server = grpc.aio.server(options=SERVER_OPTIONS)
    engine_pb2_grpc.add_EngineServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with connect(f"127.0.0.1:{port}") as channel:
        method = engine_pb2_grpc.EngineStub(channel).Session
        client: GenerateClient = SessionClient(method, engine_pb2.EngineClientFrame, peer="engine")
        readers = [asyncio.create_task(_read(client, steps)) for _ in range(requests)]
        await servicer.all_open.wait()
        started = time.process_time()
        await servicer.play(steps)
        await asyncio.gather(*readers)
        used = time.process_time() - started
        await client.close()
    await server.stop(0)
    return used / (requests * steps)


async def _read(client: GenerateClient, steps: int) -> None:
    async with client.open(engine_pb2.GenerateRequest(), Opening("bench")) as stream:
        seen = 0
        async for event in stream:
            seen += sum(len(chunk.token_ids) for chunk in event.chunks)
            if seen == steps:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    print("| requests per step | CPU us per token, both ends |\n|--:|--:|")
    for requests in (1, 16, 64, 256):
        print(f"| {requests} | {asyncio.run(measure(requests, steps)) * 1e6:.1f} |")


if __name__ == "__main__":
    main()
