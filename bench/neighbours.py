"""What hostile prompts of one client cost another.

    python -m bench.neighbours                               # SmolLM2-135M, a whole stack, 10 seconds for each row
    python -m bench.neighbours --seconds 3 --model simulated

One client sends what takes the tokenizer longest; another asks for one token, one request after the other. Prints a
Markdown table: the other's latencies, what the first was answered, and the tokenizer's memory, its children's included.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx2

from tests.stack import Stack, running_stack

_FOREVER: Final = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
_TEMPLATE: Final = (
    "{% for message in messages %}"
    f"{{% if message.content == 'loop' %}}{_FOREVER}{{% endif %}}"
    "{% if message.content == 'fill' %}{{ 'a' | center(10 ** 10) }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_WORDS: Final = "Could you explain how the second law of thermodynamics applies to living organisms? "
_TIMEOUT: Final = 120.0


@dataclass(frozen=True, slots=True)
class Attack:
    """What ``clients`` send again and again, all at once."""

    name: str
    text: str
    clients: int


def _prose(size: int) -> str:
    return (_WORDS * (size // len(_WORDS) + 1))[:size]


ATTACKS: Final = (
    Attack("none", "", 0),
    Attack("400 KB, 4 at once", _prose(400_000), 4),
    Attack("4 MB, one at a time", _prose(4_000_000), 1),
    Attack("4 MB, 4 at once", _prose(4_000_000), 4),
    Attack("400 KB of `<`, 4 at once", "<" * 400_000, 4),
    Attack("1 MB of what takes no token, 2 at once", "\x06" * 1_000_000, 2),
    Attack("a template that loops, 2 at once", "loop", 2),
    Attack("a template that fills the memory, 2 at once", "fill", 2),
)


@dataclass(slots=True)
class Row:
    """What one attack did."""

    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    peak_bytes: int = 0


async def _ask(client: httpx2.AsyncClient, model: str, text: str) -> int:
    request = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    return (await client.post("/v1/chat/completions", json=request)).status_code


def _tokenizer_bytes(stack: Stack) -> int:
    tokenizer = stack.process("tokenizer_svc")
    return sum(each.memory_info().rss for each in (tokenizer, *tokenizer.children()))


async def _attack(attack: Attack, client: httpx2.AsyncClient, model: str, row: Row) -> None:
    while True:
        row.statuses[await _ask(client, model, attack.text)] += 1


async def _measure(stack: Stack, attack: Attack, seconds: float) -> Row:
    row, until = Row(), time.monotonic() + seconds
    async with (
        httpx2.AsyncClient(base_url=stack.url, timeout=_TIMEOUT) as hostile,
        httpx2.AsyncClient(base_url=stack.url, timeout=_TIMEOUT) as other,
    ):
        model = (await other.get("/v1/models")).json()["data"][0]["id"]
        attackers = [asyncio.create_task(_attack(attack, hostile, model, row)) for _ in range(attack.clients)]
        while time.monotonic() < until:
            started = time.perf_counter()
            status = await _ask(other, model, "Hello!")
            row.latencies.append(time.perf_counter() - started)
            assert status == 200, f"the other client was answered {status}"
            row.peak_bytes = max(row.peak_bytes, _tokenizer_bytes(stack))
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)
    return row


def _line(attack: Attack, row: Row, after: int) -> str:
    ordered = sorted(row.latencies)
    p99 = ordered[int(len(ordered) * 0.99)]
    statuses = ", ".join(f"{count} x {status}" for status, count in sorted(row.statuses.items())) or "-"
    return (
        f"| {attack.name} | {len(ordered)} | {statistics.median(ordered) * 1e3:.1f} | {p99 * 1e3:.1f} "
        f"| {ordered[-1] * 1e3:.1f} | {statuses} | {row.peak_bytes / 1e6:.0f} | {after / 1e6:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="as for `pellucid serve`")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row")
    arguments = parser.parse_args()
    flags = ("--model", arguments.model) if arguments.model else ()
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "hostile.jinja"
        template.write_text(_TEMPLATE)
        with running_stack(*flags, TOKENIZER_CHAT_TEMPLATE=str(template)) as stack:
            print("| one client sends | other requests | p50 ms | p99 ms | longest ms | answers | peak MB | after MB |")
            print("|---|--:|--:|--:|--:|---|--:|--:|")
            for attack in ATTACKS:
                row = asyncio.run(_measure(stack, attack, arguments.seconds))
                time.sleep(6.0)  # Longer than a template may run, so that what was left behind has ended.
                print(_line(attack, row, _tokenizer_bytes(stack)), flush=True)


if __name__ == "__main__":
    main()
