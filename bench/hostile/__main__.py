"""Latency of a well-behaved client, and memory of the services, under load from hostile clients.

    python -m bench.hostile                                  # all kinds, each on a stack with the settings it needs
    python -m bench.hostile --only slow-bodies --seconds 20
    python -m bench.hostile --only schemas --clients 4 --busy 2
    python -m bench.hostile --url http://127.0.0.1:8000      # a running stack

Prints a Markdown table. Each stack has a row without hostile clients, and one row per kind: latency and statuses of
small chats of the good client, their median latency after the attack, the responses to the hostile clients, and memory
before, peak, after.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from multiprocessing import get_context
from typing import Final

import httpx2

from bench.hostile import bodies, memory, prompts, readers, schemas, templates
from bench.hostile.clients import run_good_client, run_hostile_clients
from bench.hostile.kind import Kind, Target
from bench.hostile.table import HEADER, rows
from tests.stack import Stack, running_stack

KINDS: Final = {kind.name: kind for module in (bodies, readers, schemas, prompts, templates) for kind in module.KINDS}


async def measure(kind: Kind, target: Target, stack: Stack | None, seconds: float) -> Iterator[str]:
    """The rows of one kind. Takes about twice ``seconds``."""
    before, peak = memory.resident(stack), dict[str, float]()
    watching = asyncio.create_task(memory.track_peak(stack, peak))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        hostile = (kind.attack, kind.clients, kind.pause_seconds, target, seconds * 5 / 4)
        attacking = asyncio.get_running_loop().run_in_executor(pool, run_hostile_clients, *hostile)
        await asyncio.sleep(seconds / 4)
        during = await run_good_client(target, kind.good, seconds)
        responses = await attacking
    watching.cancel()
    await asyncio.sleep(seconds * 2 / 5)  # 6 s with the default of 15: longer than the time limit of a template
    memory_after = memory.resident(stack)
    after = await run_good_client(target, kind.good, seconds / 3)
    return rows(f"{kind.clients or ''} {kind.name}".strip(), during, after, responses, before, peak, memory_after)


def report(kinds: list[Kind], url: str, stack: Stack | None, arguments: argparse.Namespace) -> None:
    """Print the rows of all kinds that share a stack."""
    models = httpx2.get(f"{url}/v1/models", trust_env=False).json()["data"]
    where, served = httpx2.URL(url), (not stack and arguments.model) or models[0]["id"]
    target = Target(where.host, where.port or 80, served)
    good = {name: fields for kind in kinds for name, fields in kind.good.items()}
    none = replace(kinds[0], name=f"none ({served})", clients=0, good=good)
    asyncio.run(run_good_client(target, good, 1.0))  # warm-up
    for kind in (none, *kinds):
        print(*asyncio.run(measure(kind, target, stack, arguments.seconds)), sep="\n", flush=True)


def selected_kinds(arguments: argparse.Namespace) -> list[Kind]:
    """The selected kinds, with overrides from the command line. Templates need a stack started here."""
    model = {"ENGINE_MODEL": arguments.model} if arguments.model else {}
    kinds = [kind for name, kind in KINDS.items() if name in (arguments.only or KINDS)]
    return [
        replace(kind, clients=arguments.clients or kind.clients, settings={**kind.settings, **model})
        for kind in kinds
        if not (arguments.url and kind in templates.KINDS)
    ]


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Other programs on the machine, at the usual niceness."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the kinds with their numbers of clients, and exit")
    parser.add_argument("--only", choices=KINDS, nargs="+", metavar="KIND", help="run these kinds; default: all")
    parser.add_argument("--clients", type=int, help="number of hostile clients; default: that of the kind")
    parser.add_argument("--seconds", type=float, default=15, help="duration of the attack of each kind")
    parser.add_argument("--model", help="model, as for `pellucid serve`; default: that of the kind")
    parser.add_argument("--busy", type=int, default=0, help="number of processes that keep the cores busy meanwhile")
    parser.add_argument("--url", help="URL of a running stack; without memory columns and template kinds")
    arguments = parser.parse_args()
    kinds = selected_kinds(arguments)
    if arguments.list:
        print(*(f"{kind.name:16}{kind.clients:5}  {kind.what}" for kind in kinds), sep="\n")
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(HEADER)
    with busy_processes(arguments.busy):
        if arguments.url:
            report(kinds, arguments.url, None, arguments)
            return
        for settings, group in groupby(kinds, lambda kind: kind.settings):
            with running_stack(**settings) as stack:
                report(list(group), stack.url, stack, arguments)


if __name__ == "__main__":
    main()
