"""Streams beside a long prompt: time between tokens, and time to the prompt's first token, in this process.

    python -m bench.interference                             # SmolLM2, 8 streams, a prompt of 4,000 tokens
    python -m bench.interference --rounds 5 --max-step-ms 100
    python -m bench.interference --cpu-time                  # on a machine with other work: one thread, its CPU time

A round computes the prompt alone, and again beside streams that decode before, during and after it. The gap between two
tokens (ITL) is that of all streams, which have one token per step: over the whole window, with as many steps before and
after the prompt as `--around` says, and over the steps with the prompt alone. Prints a Markdown table with a row per
round; ratios compare figures of the same round, so that they hold on a noisy machine.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry

from engine_svc.config import Settings
from engine_svc.engine import Engine
from engine_svc.loading import build_engine, load_runner
from engine_svc.metrics import EngineMetrics
from engine_svc.request import Request, SamplingParams
from pellucid.model import default_model_file

_NUM_IDS: Final = 10_000
_STREAM_PROMPT: Final = 64
_COLUMNS: Final = (
    "round", "ITL before, ms", "median", "p99", "p99 / median", "median with prompt", "p99", "p99 / median",
    "p99 / before", "TTFT alone, ms", "TTFT", "TTFT / alone",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds. ``before``, ``during`` and ``after`` are the steps' times before, with and after the prompt."""

    alone: float
    beside: float
    before: list[float]
    during: list[float]
    after: list[float]

    def row(self, number: int) -> str:
        whole = [*self.before, *self.during, *self.after]
        before = statistics.median(self.before)
        cells = [
            str(number),
            _ms(before),
            *_spread(whole),
            *_spread(self.during),
            f"{_p99(self.during) / before:.1f}",
            _ms(self.alone),
            _ms(self.beside),
            f"{self.beside / self.alone:.2f}",
        ]
        return f"| {' | '.join(cells)} |"


class Streams:
    """An engine, stepped by hand."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._random = random.Random(0)
        self._num_requests = 0

    def add(self, num_tokens: int, max_tokens: int) -> int:
        """Add a request with a random prompt, which no prefix cache knows."""
        prompt = tuple(self._random.randrange(_NUM_IDS) for _ in range(num_tokens))
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        self._num_requests += 1
        self._engine.add(self._num_requests, Request("bench", prompt, params, frozenset()))
        return self._num_requests

    def end(self, group_ids: SequenceOf[int]) -> None:
        for group_id in group_ids:
            self._engine.abort(group_id)

    def run_steps(self, count: int) -> list[float]:
        """Seconds of each of this many steps."""
        return [self._step()[0] for _ in range(count)]

    def run_until_done(self, group_id: int) -> list[float]:
        """Seconds of each step until this request is done."""
        times: list[float] = []
        done = False
        while not done:
            seconds, ended = self._step()
            times.append(seconds)
            done = group_id in ended
        return times

    def _step(self) -> tuple[float, set[int]]:
        started = self._clock()
        self._engine.step()
        outputs = self._engine.take_outputs()
        seconds = self._clock() - started
        return seconds, {output.group_id for output in outputs if output.is_last}


def measure(streams: Streams, *, num_streams: int, prompt: int, around: int) -> Round:
    """One round. The first token of the prompt's request is its last."""
    alone = sum(streams.run_until_done(streams.add(prompt, 1)))
    running = [streams.add(_STREAM_PROMPT, 1_000_000) for _ in range(num_streams)]
    streams.run_steps(around // 2)  # their prompts, and a few tokens
    before = streams.run_steps(around)
    during = streams.run_until_done(streams.add(prompt, 1))
    after = streams.run_steps(around)
    streams.end(running)
    return Round(alone, sum(during), before, during, after)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f}"


def _p99(times: SequenceOf[float]) -> float:
    ordered = sorted(times)
    return ordered[round(0.99 * (len(ordered) - 1))]


def _spread(times: SequenceOf[float]) -> tuple[str, str, str]:
    median, p99 = statistics.median(times), _p99(times)
    return _ms(median), _ms(p99), f"{p99 / median:.2f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a folder, a .gguf file or a Hugging Face id; default: SmolLM2")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("--around", type=int, default=40, help="measured steps before the prompt, and after it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-step-ms", type=float, default=None, help="the setting; default: the engine's")
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time, of a single thread")
    return parser.parse_args()


def _streams(arguments: argparse.Namespace) -> Streams:
    # Draft tokens would give several tokens per step.
    given: dict[str, Any] = {"speculation": "off"}
    if arguments.max_step_ms is not None:
        given["max_step_ms"] = arguments.max_step_ms
    if arguments.cpu_time:
        given["num_threads"] = 1
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    settings = Settings(model=arguments.model or str(default_model_file()), **given)
    runner = load_runner(settings)
    engine = build_engine(settings, runner, EngineMetrics(CollectorRegistry(), settings.model_name), clock)
    return Streams(engine, clock)


def main() -> None:
    arguments = _arguments()
    streams = _streams(arguments)
    sizes = {"num_streams": arguments.streams, "prompt": arguments.prompt, "around": arguments.around}
    streams.run_until_done(streams.add(_STREAM_PROMPT, 4))  # warm up
    print(f"| {' | '.join(_COLUMNS)} |\n|{'--:|' * len(_COLUMNS)}")
    for number in range(1, arguments.rounds + 1):
        print(measure(streams, **sizes).row(number), flush=True)


if __name__ == "__main__":
    main()
