"""The rows of the Markdown table."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import quantiles
from typing import Final

from bench.hostile.clients import Responses
from tests.stack import SERVICES

_COLUMNS: Final = (
    *("hostile clients", "p50 ms", "p99 ms", "max ms", "p50 ms after", "responses"),
    "responses to hostile clients (max wait)",
)
_MEMORY: Final = tuple(f"{service} MiB" for service in SERVICES)
HEADER: Final = f"| {' | '.join(_COLUMNS + _MEMORY)} |\n|---{'|--:' * 4}{'|---' * 6}|"


def rows(
    name: str,
    during: dict[str, Responses],
    after: dict[str, Responses],
    hostile: Responses,
    *sizes: dict[str, float],
) -> Iterator[str]:
    """One row per request of the good client. The first has the shared columns too: ``sizes`` before, peak, after."""
    waits = ", ".join(f"{len(each)} x {outcome} ({max(each):.1f} s)" for outcome, each in hostile.seconds.items())
    memory = (", ".join(f"{size[service]:.0f}" for size in sizes if size) or "-" for service in SERVICES)
    shared = [waits or "-", *memory]
    for request, responses in during.items():
        counts = ", ".join(f"{len(each)} x {outcome}" for outcome, each in responses.seconds.items())
        times = [f"{value:.1f}" for value in (*_milliseconds(responses), _milliseconds(after[request])[0])]
        named = name if request == "plain" else f"{name}: {request}"
        yield f"| {' | '.join([named, *times, counts, *shared])} |"
        shared = [""] * len(shared)


def _milliseconds(responses: Responses) -> tuple[float, float, float]:
    """Median, 99th percentile, maximum."""
    every = [1000 * latency for latencies in responses.seconds.values() for latency in latencies]
    cuts = quantiles(every, n=100, method="inclusive")
    return cuts[49], cuts[98], max(every)
