"""Clients that ask for much and then stop reading: what a second client and the memory of each process see of it.

    .venv/bin/python -m bench.stopped_readers --readers 100 --seconds 60

Each reader asks for ``n`` choices with log probabilities as a stream and reads nothing; one that is refused or whose
connection ends tries again after five seconds. Meanwhile another client asks short questions, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

import httpx2
import orjson
import psutil

from tests.stack import SERVICES, Stack, running_stack

_MIB = 1024 * 1024


@dataclass(slots=True)
class Asked:
    """What the second client saw."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int | str] = field(default_factory=Counter)

    def __str__(self) -> str:
        cuts = quantiles(self.seconds, n=100, method="inclusive")
        milliseconds = [1000 * value for value in (cuts[49], cuts[98], max(self.seconds))]
        p50, p99, longest = milliseconds
        return f"p50 {p50:.0f}, p99 {p99:.0f}, longest {longest:.0f} ms; {dict(self.statuses)}"


async def stop_reading(url: str, body: bytes, outcomes: Counter[str]) -> None:
    """Ask, read the status line and then nothing; again when that was no 200 or the server has closed."""
    parts = urlsplit(url)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    while True:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=4096)
        try:
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            status = (await reader.readline()).split(b" ")[1:2]
            outcomes[status[0].decode() if status else "nothing"] += 1
            if status == [b"200"]:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                await _until_closed(writer)
                outcomes["closed"] += 1
        finally:
            writer.close()
        await asyncio.sleep(5.0)


async def _until_closed(writer: asyncio.StreamWriter) -> None:
    """Who does not read learns from the kernel alone that the other side has closed."""
    port = writer.get_extra_info("sockname")[1]
    while port in await asyncio.to_thread(_established):  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(2.0)


def _established() -> set[int]:
    connections = psutil.Process().net_connections("tcp")
    return {each.laddr.port for each in connections if each.status == psutil.CONN_ESTABLISHED}


async def ask_again_and_again(url: str, body: dict[str, Any], asked: Asked) -> None:
    async with httpx2.AsyncClient(timeout=120, trust_env=False) as client:
        while True:
            began = time.monotonic()
            try:
                answer: int | str = (await client.post(f"{url}/v1/chat/completions", json=body)).status_code
            except httpx2.HTTPError as error:
                answer = type(error).__name__
            asked.statuses[answer] += 1
            asked.seconds.append(time.monotonic() - began)
            await asyncio.sleep(0.05)


def memory(stack: Stack) -> dict[str, float]:
    """Resident memory of each service, MiB."""
    return {service: round(stack.process(service).memory_info().rss / _MIB, 1) for service in SERVICES}


async def watch_memory(stack: Stack, peak: dict[str, float]) -> None:
    while True:
        for service, size in memory(stack).items():
            peak[service] = max(size, peak.get(service, 0.0))
        await asyncio.sleep(0.5)


async def measure(stack: Stack, arguments: argparse.Namespace) -> None:
    question = {"model": arguments.model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    flood = {
        "model": arguments.model,
        "messages": [{"role": "user", "content": "Tell me everything."}],
        "n": arguments.n,
        "stream": True,
        "logprobs": True,
        "top_logprobs": 5,
        "ignore_eos": True,
    }
    asked, outcomes, peak = Asked(), Counter[str](), dict[str, float]()
    alone = Asked()
    await _for(5.0, ask_again_and_again(stack.url, question, alone))
    print(f"alone:     {alone}")
    print(f"before:    {memory(stack)}")
    readers = [stop_reading(stack.url, orjson.dumps(flood), outcomes) for _ in range(arguments.readers)]
    works = (ask_again_and_again(stack.url, question, asked), watch_memory(stack, peak), *readers)
    await _for(arguments.seconds, *works)
    print(f"meanwhile: {asked}")
    print(f"peak:      {peak}")
    print(f"readers:   {dict(outcomes)}")
    await asyncio.sleep(5.0)
    print(f"after:     {memory(stack)}")
    again = Asked()
    await _for(5.0, ask_again_and_again(stack.url, question, again))
    print(f"again:     {again}")


async def _for(seconds: float, *works: Any) -> None:
    """Do all of it for so long. Raises what one of them raised."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*works)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--n", type=int, default=128, help="choices of each reader's request")
    parser.add_argument("--model", default="simulated", help="what `pellucid serve` is to serve")
    arguments = parser.parse_args()
    with running_stack("--model", arguments.model, "--served-model-name", arguments.model) as stack:
        asyncio.run(measure(stack, arguments))


if __name__ == "__main__":
    main()
