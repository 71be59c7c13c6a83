"""Overhead of an engine step besides the model: scheduling, batch preparation, sampling, output.

    python -m bench.overhead                                 # SmolLM2-135M, batches of 1, 16 and 64, greedy
    python -m bench.overhead --temperature 0.8

The real engine without a server; each step generates one token per sequence. Prints a Markdown table: the median time
of a step, and the median share that was not spent in the model's forward pass and logits.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry

from engine_svc.config import Settings
from engine_svc.engine import Engine
from engine_svc.loading import build_engine, load_runner
from engine_svc.metrics import EngineMetrics
from engine_svc.request import Request, SamplingParams
from engine_svc.runners.interface import Runner
from pellucid.model import default_model_file

if TYPE_CHECKING:  # torch must not be imported before the engine has set the OpenMP wait policy
    from torch import Tensor

    from engine_svc.executors.interface import Executor, PreparedStep
    from engine_svc.sampling.logit_rows import LogitRows

_NO_END: Final = 1 << 30

T = TypeVar("T")


class TimedExecutor:
    """An executor that accumulates the ``seconds`` spent in it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.info, self.device = executor.info, executor.device
        self.seconds = 0.0

    def forward(self, step: PreparedStep) -> LogitRows:
        return TimedRows(self, self.timed(lambda: self._executor.forward(step)))

    def timed(self, compute: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = compute()
        self.seconds += time.perf_counter() - started
        return result


@dataclass(frozen=True, slots=True)
class TimedRows:
    """Logits rows of the executor, which it may compute lazily."""

    executor: TimedExecutor
    rows: LogitRows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice, /) -> Tensor:
        return self.executor.timed(lambda: self.rows[rows])


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step in total, and in the model."""

    total: float
    model: float

    @property
    def overhead(self) -> float:
        return 1 - self.model / self.total


def steps(engine: Engine, model: TimedExecutor) -> Iterator[Step]:
    """Run steps, and take the outputs as the step loop does."""
    while True:
        before, started = model.seconds, time.perf_counter()
        engine.step()
        engine.take_outputs()
        yield Step(time.perf_counter() - started, model.seconds - before)


def start(engine: Engine, requests: list[Request]) -> None:
    """Add the requests and run their prefill."""
    for group_id, request in enumerate(requests):
        engine.add(group_id, request)
    waiting = set(range(len(requests)))
    while waiting:
        engine.step()
        waiting -= {output.group_id for output in engine.take_outputs() if output.choices}


def measure(engine: Engine, model: TimedExecutor, requests: list[Request], num_steps: int) -> list[Step]:
    """Decode steps of all requests."""
    start(engine, requests)
    found = list(islice(steps(engine, model), num_steps))
    for group_id in range(len(requests)):
        engine.abort(group_id)
    return found


def make_requests(count: int, length: int, temperature: float) -> list[Request]:
    """Requests with random token ids below 10,000. They run until they are aborted."""
    params = SamplingParams(temperature=temperature, max_tokens=_NO_END, ignore_eos=True)
    prompts = [tuple(random.choices(range(10_000), k=length)) for _ in range(count)]
    return [Request(f"request {number}", prompt, params, frozenset()) for number, prompt in enumerate(prompts)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a folder, a .gguf file or a Hugging Face id; default: SmolLM2")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--prompt", type=int, default=128, help="tokens per prompt")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16, 64])
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    random.seed(0)
    settings = Settings(
        model=arguments.model or str(default_model_file()), max_num_seqs=max(arguments.batches), speculation="off"
    )
    runner = load_runner(settings)
    model = _timed_executor_of(runner)
    engine = build_engine(settings, runner, EngineMetrics(CollectorRegistry(), settings.model_name))
    print(f"| {runner.info.dtype}: sequences | step, ms | in the model, ms | overhead |\n|---|--:|--:|--:|")
    for size in arguments.batches:
        requests = make_requests(size, arguments.prompt, arguments.temperature)
        found = measure(engine, model, requests, arguments.steps)
        total = 1000 * statistics.median(step.total for step in found)
        inside = 1000 * statistics.median(step.model for step in found)
        share = statistics.median(step.overhead for step in found)
        print(f"| {size} | {total:.2f} | {inside:.2f} | {share:.1%} |", flush=True)


def _timed_executor_of(runner: Runner) -> TimedExecutor:
    """Replaces the executor of the runner."""
    from engine_svc.runners.model_runner import ModelRunner

    assert isinstance(runner, ModelRunner)
    runner._executor = executor = TimedExecutor(runner._executor)
    return executor


if __name__ == "__main__":
    main()
