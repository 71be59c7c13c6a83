"""What one client's schemas cost the others: requests of a second client beside constraints that explode.

    python -m bench.hostile_schemas

A whole stack with the simulated model. Attackers send, again and again, patterns that must all match, names by 500
patterns, and a schema of 256 KB, each time another one. Prints a Markdown table of the second client's times, alone and
meanwhile, then what the attackers were told, and what memory the engine and its children have taken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from tests.stack import Stack, running_stack

_PATTERNS: Final = [{"pattern": f"^(a|b)*a(a|b){{{number}}}$"} for number in range(1, 31)]
_NAMES: Final = {f"^p{number}_": {"type": "string"} for number in range(500)}
_LARGE: Final = {
    f"p{n}": {"type": "object", "properties": {f"q{m}": {"type": "string"} for m in range(40)}} for n in range(230)
}
_HOSTILE: Final[tuple[dict[str, Any], ...]] = (
    {"type": "string", "allOf": _PATTERNS},
    {"type": "object", "patternProperties": _NAMES},
    {"type": "object", "properties": _LARGE},
)
_numbers: Final = count()


def _post(url: str, **fields: Any) -> tuple[int, float]:
    """Status and seconds."""
    ask = {"model": "simulated", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4} | fields
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(ask).encode(), headers)
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
            status = int(answer.status)
    except urllib.error.HTTPError as error:
        status = error.code
    return status, time.perf_counter() - started


def _format(schema: dict[str, Any]) -> dict[str, Any]:
    """A response format that has not been asked for before."""
    schema = schema | {"description": str(next(_numbers))}
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def _person() -> dict[str, Any]:
    return _format({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}})


_KINDS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "plain": dict,
    "json_object": lambda: {"response_format": {"type": "json_object"}},
    "a new schema": lambda: {"response_format": _person()},
}


def _measure(url: str, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each kind of request, one after the other."""
    found: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for kind, fields in _KINDS.items():
            status, took = _post(url, **fields())
            assert status == 200, (kind, status)
            found[kind].append(took * 1e3)
    return found


class _Attack:
    """Attackers at work inside the ``with``; ``told`` counts statuses, ``longest`` is the longest wait for a 400."""

    def __init__(self, url: str, num_attackers: int) -> None:
        self.told: Counter[int] = Counter()
        self.longest = 0.0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(url, number)) for number in range(num_attackers)]

    def __enter__(self) -> _Attack:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, url: str, number: int) -> None:
        for kind in count(number):
            if self._is_over.is_set():
                return
            status, took = _post(url, response_format=_format(_HOSTILE[kind % len(_HOSTILE)]))
            self.told[status] += 1
            self.longest = max(self.longest, took if status == 400 else 0.0)


def _rows(name: str, found: dict[str, list[float]]) -> Iterator[str]:
    for kind, times in found.items():
        p99 = statistics.quantiles(times, n=100)[-1]
        yield f"| {kind}, {name} | {len(times)} | {statistics.median(times):.0f} ms | {p99:.0f} ms |"


def _mib(stack: Stack) -> str:
    engine = stack.process("engine_svc")
    children = sum(child.memory_info().rss for child in engine.children())
    return f"engine {engine.memory_info().rss >> 20} MiB, children {children >> 20} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each part takes")
    parser.add_argument("--attackers", type=int, default=2)
    asked = parser.parse_args()
    with running_stack("--model", "simulated") as stack:
        _measure(stack.url, 1.0)
        before, alone = _mib(stack), _measure(stack.url, asked.seconds)
        with _Attack(stack.url, asked.attackers) as attack:
            meanwhile = _measure(stack.url, asked.seconds)
        print("| request | number | p50 | p99 |\n|---|--:|--:|--:|")
        print("\n".join([*_rows("alone", alone), *_rows(f"beside {asked.attackers} attackers", meanwhile)]))
        print(f"attackers: {json.dumps(attack.told)}, the longest wait for a 400 {attack.longest:.1f} s")
        print(f"memory: {before}; after: {_mib(stack)}")


if __name__ == "__main__":
    main()
