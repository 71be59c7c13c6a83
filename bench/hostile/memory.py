"""Resident memory of each service with its children, in MiB."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psutil

from tests.stack import SERVICES, Stack


def taken(stack: Stack | None) -> dict[str, float]:
    """MiB by service; empty for a stack that was not started here."""
    sizes: dict[str, float] = dict.fromkeys(SERVICES, 0.0) if stack else {}
    owners: dict[int, str] = {}
    for process in stack.supervisor.children(recursive=True) if stack else ():  # Parents come before their children.
        with suppress(psutil.Error):
            words = process.cmdline()
            owner = next((service for service in SERVICES if service in words), owners.get(process.ppid(), ""))
            sizes[owner] = sizes.get(owner, 0.0) + process.memory_info().rss / 2**20
            owners[process.pid] = owner
    return sizes


async def watch(stack: Stack | None, peak: dict[str, float]) -> None:
    """Record the peak of each service."""
    while True:
        for service, size in (await asyncio.to_thread(taken, stack)).items():
            peak[service] = max(size, peak.get(service, 0.0))
        await asyncio.sleep(0.5)
