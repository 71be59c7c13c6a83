"""Many concurrent streams through the stack: correctness of each stream, tokens per second, CPU time per token.

    python -m bench.streams                      # starts a stack with the simulated model, runs 1,000 streams
    python -m bench.streams --requests 100

Prints a Markdown table with one row per process: CPU microseconds per output token, and its share of the total.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2
import orjson

from tests.stack import SERVICES, Stack, running_stack

_ALPHABET = "abcdefghijklmnopqrstuvwxyz "


@dataclass(slots=True)
class Outcome:
    """Results of the clients. ``faults`` has a message for each stream that differs from its script."""

    tokens: int = 0
    seconds: float = 0.0
    first_token_seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


async def play(api: str, model: str, *, requests: int, tokens: int, concurrency: int) -> Outcome:
    """Stream ``requests`` scripts of ``tokens`` one-token steps, ``concurrency`` at a time."""
    outcome = Outcome()
    numbers = iter(range(requests))
    limits = httpx2.Limits(max_connections=concurrency)
    started = time.perf_counter()
    async with httpx2.AsyncClient(limits=limits, timeout=120) as client:

        async def worker() -> None:
            for number in numbers:
                await _play_one(client, api, model, number, tokens, outcome)

        await asyncio.gather(*(worker() for _ in range(concurrency)))
    outcome.seconds = time.perf_counter() - started
    return outcome


async def _play_one(
    client: httpx2.AsyncClient, api: str, model: str, number: int, tokens: int, outcome: Outcome
) -> None:
    steps = random.Random(number).choices(_ALPHABET, k=tokens)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"request {number}"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "simulate": {"steps": steps, "finish": "length"},
    }
    text, finish, done = "", None, False
    usage: dict[str, Any] = {}
    started = time.perf_counter()
    async with client.stream("POST", f"{api}/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event: dict[str, Any] = orjson.loads(line[6:])
                usage = event.get("usage") or usage
                for choice in event.get("choices", ()):
                    if not text and choice["delta"].get("content"):
                        outcome.first_token_seconds.append(time.perf_counter() - started)
                    text += choice["delta"].get("content") or ""
                    finish = choice["finish_reason"] or finish
    outcome.tokens += usage.get("completion_tokens", 0)
    if (text, finish, done, usage.get("completion_tokens")) != ("".join(steps), "length", True, tokens):
        outcome.faults.append(f"stream {number}: {answer.status_code} {finish} {done} {usage} {text!r}")


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """Total CPU time of each service, user and system."""
    times = {service: stack.process(service).cpu_times() for service in SERVICES}
    return {service: used.user + used.system for service, used in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--concurrency", type=int, default=64)
    options = parser.parse_args()
    with running_stack("--model", "simulated") as stack:
        asyncio.run(play(stack.api, "simulated", requests=64, tokens=options.tokens, concurrency=64))
        before = cpu_seconds(stack)
        client_before = time.process_time()
        outcome = asyncio.run(play(stack.api, "simulated", **vars(options)))
        client = time.process_time() - client_before
        used = {service: after - before[service] for service, after in cpu_seconds(stack).items()}
    report(outcome, used | {"load client": client})


def report(outcome: Outcome, used: dict[str, float]) -> None:
    """Print the figures as Markdown."""
    for fault in outcome.faults[:10]:
        print(fault)
    first = sorted(outcome.first_token_seconds)
    print(
        f"{len(outcome.faults)} faults, {outcome.tokens} tokens in {outcome.seconds:.2f} s: "
        f"{outcome.tokens / outcome.seconds:.0f} tokens/s; "
        f"first token p50 {first[len(first) // 2] * 1e3:.0f} ms\n"
    )
    total = sum(used.values())
    print("| process | CPU us per token | share |\n|---|--:|--:|")
    for name, seconds in used.items():
        print(f"| {name} | {seconds / outcome.tokens * 1e6:.1f} | {seconds / total:.0%} |")


if __name__ == "__main__":
    main()
