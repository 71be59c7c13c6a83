"""Hostile clients beside a good one: what does the good one notice?

    python -m bench.hostile                              # starts a stack with the simulated model
    python -m bench.hostile --url http://127.0.0.1:8000  # or asks a running one
    python -m bench.hostile --only slow-bodies --connections 1100 --seconds 20

Prints a Markdown row for each kind of hostile client: p50 and p99 of the good client's small chats in milliseconds, how
many were not a 200, and what the hostile ones were told.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import resource
import socket
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from urllib.parse import urlsplit

import httpx2
import orjson

from tests.stack import running_stack

MIB = 2**20
_HEAD_START_SECONDS = 4.0
_FEWEST_CHATS = 10
_PAUSE_SECONDS = 0.02
"""Between two chats of the good client."""


@dataclass(slots=True)
class Target:
    """Where the clients go; ``told`` counts what the hostile ones were answered."""

    host: str
    port: int
    model: str
    told: Counter[str] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def chat(self, **fields: object) -> bytes:
        return orjson.dumps({"model": self.model, "messages": [{"role": "user", "content": "hi"}]} | fields)


def head(length: int, *more: str) -> bytes:
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", "content-type: application/json"]
    return "\r\n".join([*lines, f"content-length: {length}", *more, "", ""]).encode()


_MOST = {"large-slow-bodies": 44, "stopped-readers": 100}
"""More bodies than are held at a time; fewer readers than there are permits, so that a good client finds one."""

Hostile = Callable[[Target], Awaitable[None]]


async def slow_body(target: Target) -> None:
    """A body that is promised, begun, and goes on with a byte now and then."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    writer.write(head(1000) + b"{")
    answer = asyncio.create_task(reader.readline())
    while not (await asyncio.wait([answer], timeout=2))[0]:
        writer.write(b" ")
    target.told[(await answer).decode().strip() or "closed"] += 1
    writer.close()


async def large_slow_body(target: Target) -> None:
    """Most of the largest body at once, and then nothing."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    writer.write(head(8 * MIB) + b" " * (8 * MIB - 1))
    target.told[(await reader.readline()).decode().strip() or "closed"] += 1
    writer.close()


async def silence(target: Target) -> None:
    """A connection that asks nothing."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    target.told[(await reader.readline()).decode().strip() or "closed"] += 1
    writer.close()


async def stopped_reader(target: Target) -> None:
    """A long answer that is not read."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(client, (target.host, target.port))
        body = target.chat(stream=True, logprobs=True, top_logprobs=5, max_tokens=4000, ignore_eos=True)
        await loop.sock_sendall(client, head(len(body)) + body)
        while not client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(1)
        target.told["reset"] += 1


KINDS: dict[str, Hostile] = {
    "slow-bodies": slow_body,
    "large-slow-bodies": large_slow_body,
    "silent-connections": silence,
    "stopped-readers": stopped_reader,
}


async def be_hostile(kind: str, target: Target, count: int) -> None:
    """``count`` hostile clients at any time: whoever is ended comes again after a second."""

    async def again_and_again() -> None:
        while True:
            try:
                await KINDS[kind](target)
            except OSError as error:
                target.told[type(error).__name__] += 1
            await asyncio.sleep(1)

    await asyncio.gather(*(again_and_again() for _ in range(count)))


def _be_hostile(kind: str, target: Target, count: int, seconds: float, told: Queue[Counter[str]]) -> None:
    """In a process of its own, so that the good client measures the server and not its neighbours."""

    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await be_hostile(kind, target, count)

    asyncio.run(run())
    told.put(target.told)


async def good_client(target: Target, seconds: float) -> tuple[list[float], int]:
    """Small chats one after the other, each on a connection of its own: milliseconds, and how many failed."""
    times: list[float] = []
    failures = 0
    body = target.chat(max_tokens=4)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < _FEWEST_CHATS:
        started = time.perf_counter()
        try:
            async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
                headers = {"content-type": "application/json"}
                answer = await client.post(f"{target.url}/v1/chat/completions", content=body, headers=headers)
            failures += answer.status_code != httpx2.codes.OK
        except httpx2.HTTPError:
            failures += 1
        times.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(_PAUSE_SECONDS)
    return times, failures


def row(name: str, times: list[float], failures: int, told: Counter[str]) -> str:
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    answers = ", ".join(f"{count} x {answer}" for answer, count in told.most_common(4))
    return f"| {name} | {len(times)} | {p50:.1f} | {p99:.1f} | {failures} | {answers or '-'} |"


def measure(target: Target, kind: str | None, connections: int, seconds: float) -> str:
    """A row of the table."""
    if kind is None:
        times, failures = asyncio.run(good_client(target, seconds))
        return row("none", times, failures, Counter())
    count = min(connections, _MOST.get(kind, connections))
    told: Queue[Counter[str]] = multiprocessing.Queue()
    enemy = multiprocessing.Process(target=_be_hostile, args=(kind, target, count, seconds + _HEAD_START_SECONDS, told))
    enemy.start()
    time.sleep(_HEAD_START_SECONDS)
    times, failures = asyncio.run(good_client(target, seconds))
    answers = told.get()
    enemy.join()
    return row(f"{count} {kind}", times, failures, answers)


def report(url: str, model: str, kinds: list[str], connections: int, seconds: float) -> None:
    parts = urlsplit(url)
    print(
        "| hostile clients | chats | p50 ms | p99 ms | failed | the hostile ones were told |\n|---|--:|--:|--:|--:|---|"
    )
    for kind in (None, *kinds):
        target = Target(parts.hostname or "127.0.0.1", parts.port or 80, model)
        print(measure(target, kind, connections, seconds), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a running stack; without it one is started")
    parser.add_argument("--model", default="simulated", help="its served name")
    parser.add_argument("--only", choices=KINDS, action="append", help="kinds of hostile clients; all when left out")
    parser.add_argument("--connections", type=int, default=1100, help="hostile clients at a time")
    parser.add_argument("--seconds", type=float, default=15, help="time for each kind")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kinds = args.only or list(KINDS)
    if args.url:
        report(args.url, args.model, kinds, args.connections, args.seconds)
        return
    with running_stack("--model", "simulated") as stack:
        report(stack.url, args.model, kinds, args.connections, args.seconds)


if __name__ == "__main__":
    main()
