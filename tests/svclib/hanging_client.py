"""``python -m tests.svclib.hanging_client ADDRESS``: opens a request and waits for its end."""

from __future__ import annotations

import asyncio
import sys

from protos.v1 import detokenizer_pb2 as pb
from protos.v1 import detokenizer_pb2_grpc as pb_grpc
from svclib.channel import connect
from svclib.session import SessionClient
from tests.svclib.pipe import FormatClient, opening, request


async def main() -> None:
    async with connect(sys.argv[1]) as channel:
        session = pb_grpc.DetokenizerStub(channel).Session
        client: FormatClient = SessionClient(session, pb.DetokenizerClientFrame, peer="server")
        async with client.open(request(), opening()) as stream:
            async for _ in stream:
                pass


if __name__ == "__main__":
    asyncio.run(main())
