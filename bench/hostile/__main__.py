"""Hostile clients beside a good one: what does the good one notice, and what memory do they cost?

    python -m bench.hostile                                  # every kind, each on a stack with the settings it needs
    python -m bench.hostile --only slow-bodies --seconds 20
    python -m bench.hostile --url http://127.0.0.1:8000      # a running stack

Prints a Markdown table, for each stack a row without hostile clients and one for each kind: times and statuses of the
good client's small chats, their median once the others have gone, what those were told, memory before, at most, after.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import groupby
from multiprocessing import get_context
from typing import Final

import httpx2

from bench.hostile import bodies, memory, prompts, readers, schemas, templates
from bench.hostile.clients import be_good, be_hostile
from bench.hostile.kind import Kind, Target
from bench.hostile.table import HEADER, rows
from tests.stack import Stack, running_stack

KINDS: Final = {kind.name: kind for room in (bodies, readers, schemas, prompts, templates) for kind in room.KINDS}


async def measure(kind: Kind, target: Target, stack: Stack | None, seconds: float) -> Iterator[str]:
    """Rows of the table. Takes about twice ``seconds``."""
    before, peak = memory.taken(stack), dict[str, float]()
    watching = asyncio.create_task(memory.watch(stack, peak))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        hostile = (kind.attack, kind.clients, kind.pause_seconds, target, seconds * 5 / 4)
        attacking = asyncio.get_running_loop().run_in_executor(pool, be_hostile, *hostile)
        await asyncio.sleep(seconds / 4)
        meanwhile = await be_good(target, kind.good, seconds)
        told = await attacking
    watching.cancel()
    await asyncio.sleep(seconds * 2 / 5)  # With the usual 15, longer than a template may run.
    after = memory.taken(stack)
    again = await be_good(target, kind.good, seconds / 3)
    return rows(f"{kind.clients or ''} {kind.name}".strip(), meanwhile, again, told, before, peak, after)


def report(kinds: list[Kind], url: str, stack: Stack | None, arguments: argparse.Namespace) -> None:
    """Print the rows of kinds that share a stack."""
    models = httpx2.get(f"{url}/v1/models", trust_env=False).json()["data"]
    where, served = httpx2.URL(url), (not stack and arguments.model) or models[0]["id"]
    target = Target(where.host, where.port or 80, served)
    good = {name: fields for kind in kinds for name, fields in kind.good.items()}
    none = replace(kinds[0], name=f"none ({served})", clients=0, good=good)
    asyncio.run(be_good(target, good, 1.0))  # What is slow once.
    for kind in (none, *kinds):
        print(*asyncio.run(measure(kind, target, stack, arguments.seconds)), sep="\n", flush=True)


def chosen(arguments: argparse.Namespace) -> list[Kind]:
    """With what was asked for instead of their own. A running stack has its own template."""
    model = {"ENGINE_MODEL": arguments.model} if arguments.model else {}
    kinds = [kind for name, kind in KINDS.items() if name in (arguments.only or KINDS)]
    return [
        replace(kind, clients=arguments.clients or kind.clients, settings={**kind.settings, **model})
        for kind in kinds
        if not (arguments.url and kind in templates.KINDS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the kinds, and how many clients each has")
    parser.add_argument("--only", choices=KINDS, nargs="+", metavar="KIND", help="all when left out")
    parser.add_argument("--clients", type=int, help="of each kind, instead of its own number")
    parser.add_argument("--seconds", type=float, default=15, help="time for each kind")
    parser.add_argument("--model", help="as for `pellucid serve`, instead of each kind's own")
    parser.add_argument("--url", help="of a running stack: no memory, and no templates")
    arguments = parser.parse_args()
    kinds = chosen(arguments)
    if arguments.list:
        print(*(f"{kind.name:16}{kind.clients:5}  {kind.what}" for kind in kinds), sep="\n")
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(HEADER)
    if arguments.url:
        report(kinds, arguments.url, None, arguments)
        return
    for settings, group in groupby(kinds, lambda kind: kind.settings):
        with running_stack(**settings) as stack:
            report(list(group), stack.url, stack, arguments)


if __name__ == "__main__":
    main()
