"""Clients that request a long stream and stop reading after its status line."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any, Final

from bench.hostile.kind import Kind, Target, status

_ESTABLISHED: Final = b"\1"
"""The first byte of Linux's ``tcp_info``."""


async def _stop_reading(target: Target, **fields: Any) -> str:
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(client, (target.host, target.port))
        sent = target.chat("Tell me everything.", stream=True, logprobs=True, top_logprobs=5, ignore_eos=True, **fields)
        await loop.sock_sendall(client, sent)
        answer = status(await loop.sock_recv(client, 32))
        while answer == "200" and client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == _ESTABLISHED:  # noqa: ASYNC110
            await asyncio.sleep(1)
        return answer


# Fewer than the gateway's permits, so that the good client gets one.
KINDS: Final = (
    Kind("readers", "4,000 tokens that are not read", partial(_stop_reading, max_tokens=4000), 100, pause_seconds=1),
    Kind("readers-n128", "128 choices that are not read", partial(_stop_reading, n=128), 100, pause_seconds=5),
)
