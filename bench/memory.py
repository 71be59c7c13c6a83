"""Resident memory of the services, after the start and at the peak of a load that writes the whole KV cache.

    python -m bench.memory                                       # the default model and settings
    python -m bench.memory --model FILE --tokens 60000           # for a KV cache of another size

Starts a stack, with the settings in the environment as for `pellucid serve`. The load is 64 streams at a time of random
prompts with sampled outputs, until more tokens were computed than the default KV cache has room for (23,296 with the
default model). With prefix caching each block is then written once before any is reused.

Prints a Markdown table in MB (10^6 bytes), with a row for each service and each kind of child process. Anonymous memory
belongs to the process alone: weights, KV cache and heaps. Files are the touched pages of programs and libraries, which
processes share and the system can drop.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
import psutil

from tests.stack import SERVICES, Stack, running_stack

_FIELDS: Final = re.compile(r"^(Rss|Anonymous|AnonHugePages): +(\d+) kB$", re.MULTILINE)
_PROMPT_WORDS: Final = 60
_MAX_TOKENS: Final = 64
_SAMPLE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Usage:
    """Resident memory of one process, in bytes."""

    total: int = 0
    anonymous: int = 0
    huge_pages: int = 0
    """Part of ``anonymous``"""

    def __str__(self) -> str:
        parts = (self.total, self.huge_pages, self.anonymous - self.huge_pages, self.total - self.anonymous)
        return " | ".join(f"{part / 1e6:.0f}" for part in parts)


Usages: TypeAlias = dict[str, Usage]
"""By service or kind of child process; the largest process of each."""


def usage_of(pid: int) -> Usage:
    """Raises ``OSError`` if the process has ended."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    sizes = {name: 1024 * int(size) for name, size in _FIELDS.findall(text)}
    return Usage(sizes["Rss"], sizes["Anonymous"], sizes["AnonHugePages"])


def usages(stack: Stack) -> Usages:
    """The usage of each kind of process now."""
    found: Usages = {}
    for name, pid in _processes(stack):
        with suppress(OSError):
            found[name] = max(found.get(name, Usage()), usage_of(pid), key=lambda usage: usage.total)
    return found


def _processes(stack: Stack) -> Iterator[tuple[str, int]]:
    """The kind and pid of each process: the name of its service, or of the module of a child process."""
    for process in stack.supervisor.children(recursive=True):
        with suppress(psutil.Error):
            words = process.cmdline()
            yield next((word for word in words if word.startswith(SERVICES)), "other"), process.pid


@dataclass(slots=True)
class Peak:
    """The usage of each kind of process when it was largest."""

    usages: Usages = field(default_factory=dict)

    async def watch(self, stack: Stack) -> None:
        """Sample until cancelled."""
        while True:
            for name, usage in (await asyncio.to_thread(usages, stack)).items():
                self.usages[name] = max(self.usages.get(name, Usage()), usage, key=lambda usage: usage.total)
            await asyncio.sleep(_SAMPLE_SECONDS)


async def load(api: str, model: str, tokens: int, concurrency: int) -> int:
    """Send random chats until ``tokens`` have been computed; returns how many were."""
    computed = 0

    async def worker(client: httpx2.AsyncClient) -> None:
        nonlocal computed
        while computed < tokens:
            response = await client.post(f"{api}/chat/completions", json=_chat(model))
            response.raise_for_status()
            computed += response.json()["usage"]["total_tokens"]

    limits = httpx2.Limits(max_connections=concurrency)
    async with httpx2.AsyncClient(limits=limits, timeout=600) as client:
        await asyncio.gather(*(worker(client) for _ in range(concurrency)))
    return computed


def _chat(model: str) -> dict[str, Any]:
    words = " ".join(str(random.randrange(10**3)) for _ in range(_PROMPT_WORDS))
    messages = [{"role": "user", "content": words}]
    return {"model": model, "messages": messages, "max_tokens": _MAX_TOKENS, "temperature": 0.8, "top_p": 0.9}


async def measure(stack: Stack, tokens: int, concurrency: int) -> tuple[Usages, Usages, int]:
    """Usage before the load and at its peak, and the number of tokens computed."""
    model = httpx2.get(f"{stack.api}/models", trust_env=False).json()["data"][0]["id"]
    before, peak = usages(stack), Peak()
    watching = asyncio.create_task(peak.watch(stack))
    computed = await load(stack.api, model, tokens, concurrency)
    await asyncio.sleep(2 * _SAMPLE_SECONDS)
    watching.cancel()
    return before, peak.usages, computed


def report(before: Usages, peak: Usages) -> None:
    """Print the table."""
    print("| process | | resident, MB | anonymous: huge pages | anonymous: others | files |\n|---|---|--:|--:|--:|--:|")
    for name in sorted(peak, key=lambda name: -peak[name].total):
        print(f"| {name} | start | {before.get(name, Usage())} |\n| | peak | {peak[name]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model as for `pellucid serve`; default: SmolLM2")
    parser.add_argument("--tokens", type=int, default=30_000, help="tokens to compute, of prompts and outputs")
    parser.add_argument("--concurrency", type=int, default=64)
    arguments = parser.parse_args()
    random.seed(0)
    with running_stack(*(("--model", arguments.model) if arguments.model else ())) as stack:
        before, peak, computed = asyncio.run(measure(stack, arguments.tokens, arguments.concurrency))
    print(f"{computed} tokens\n")
    report(before, peak)


if __name__ == "__main__":
    main()
