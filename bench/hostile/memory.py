"""Resident memory of each service, including child processes, in MiB."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psutil

from tests.stack import SERVICES, Stack


def resident(stack: Stack | None) -> dict[str, float]:
    """By service; empty for a stack that was not started here."""
    sizes: dict[str, float] = dict.fromkeys(SERVICES, 0.0) if stack else {}
    owners: dict[int, str] = {}
    for process in stack.supervisor.children(recursive=True) if stack else ():  # parents come before their children
        with suppress(psutil.Error):
            words = process.cmdline()
            owner = next((service for service in SERVICES if service in words), owners.get(process.ppid(), ""))
            sizes[owner] = sizes.get(owner, 0.0) + process.memory_info().rss / 2**20
            owners[process.pid] = owner
    return sizes


async def track_peak(stack: Stack | None, peak: dict[str, float]) -> None:
    """Update ``peak`` with the maximum of each service, until cancelled."""
    while True:
        for service, size in (await asyncio.to_thread(resident, stack)).items():
            peak[service] = max(size, peak.get(service, 0.0))
        await asyncio.sleep(0.5)
