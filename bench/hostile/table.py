"""The Markdown table."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import quantiles
from typing import Final

from bench.hostile.clients import Answers
from tests.stack import SERVICES

_COLUMNS: Final = ("hostile clients", "p50 ms", "p99 ms", "longest ms", "p50 ms after", "answers", "told, longest wait")
_MEMORY: Final = tuple(f"{service} MiB" for service in SERVICES)
HEADER: Final = f"| {' | '.join(_COLUMNS + _MEMORY)} |\n|---{'|--:' * 4}{'|---' * 6}|"


def rows(
    name: str, meanwhile: dict[str, Answers], after: dict[str, Answers], told: Answers, *sizes: dict[str, float]
) -> Iterator[str]:
    """One for each request of the good client; the first has the hostile clients' waits and ``sizes`` before, at most,
    after."""
    waits = ", ".join(f"{len(each)} x {answer} ({max(each):.1f} s)" for answer, each in told.seconds.items())
    memory = (", ".join(f"{size[service]:.0f}" for size in sizes if size) or "-" for service in SERVICES)
    shared = [waits or "-", *memory]
    for request, answers in meanwhile.items():
        counts = ", ".join(f"{len(each)} x {answer}" for answer, each in answers.seconds.items())
        times = [f"{value:.1f}" for value in (*_milliseconds(answers), _milliseconds(after[request])[0])]
        named = name if request == "plain" else f"{name}: {request}"
        yield f"| {' | '.join([named, *times, counts, *shared])} |"
        shared = [""] * len(shared)


def _milliseconds(answers: Answers) -> tuple[float, float, float]:
    """Median, 99th percentile, longest."""
    every = [1000 * took for times in answers.seconds.values() for took in times]
    cuts = quantiles(every, n=100, method="inclusive")
    return cuts[49], cuts[98], max(every)
