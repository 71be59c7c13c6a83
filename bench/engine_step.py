"""Time of an engine step, by attention backend or quantisation, on the same model, in one process.

    python -m bench.engine_step                              # SmolLM2-135M, float weights, both backends
    python -m bench.engine_step --compare none int16 int8    # the compiled kernels, by quantization
    python -m bench.engine_step --dtype float32 --rounds 9

Prints a Markdown table: decode steps of several batch sizes at a context of 256 tokens, and prefill of a prompt of
1,000 tokens in chunks of 256. Each figure is the median of the rounds; runners alternate, so that noise affects all
equally.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from engine_svc.process import set_openmp_wait_policy
from engine_svc.request import Request, SamplingParams
from engine_svc.runners.interface import Runner
from engine_svc.scheduling.sequence import Sequence, choices_of
from engine_svc.scheduling.step import ScheduledSequence
from pellucid.model import default_model_file

_BACKENDS: Final = ("reference", "cpu")
_QUANTIZATIONS: Final = ("none", "int16", "int8")
_BLOCK_SIZE: Final = 16
_CONTEXT: Final = 256
_PROMPT: Final = 1000
_CHUNK: Final = 256

_seq_ids = count()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Batches that are executed in order, and timed together."""

    name: str
    batches: list[list[ScheduledSequence]]


def scenarios() -> Iterator[Scenario]:
    for size in (1, 4, 16, 32, 64):
        blocks = iter(range(size * _num_blocks(_CONTEXT)))
        batch = [ScheduledSequence(_sequence(_CONTEXT, blocks), _CONTEXT - 1, 1) for _ in range(size)]
        yield Scenario(f"decode, batch {size}", [batch])
    prompt = _sequence(_PROMPT, iter(range(_num_blocks(_PROMPT))))
    starts = range(0, _PROMPT, _CHUNK)
    chunks = [[ScheduledSequence(prompt, start, min(_CHUNK, _PROMPT - start))] for start in starts]
    yield Scenario(f"prefill, {_PROMPT} tokens", chunks)


def measure(runners: dict[str, Runner], scenario: Scenario, rounds: int) -> dict[str, float]:
    """Milliseconds per runner, the median over the rounds."""
    taken: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds + 1):
        for name, runner in runners.items():
            started = time.perf_counter()
            for batch in scenario.batches:
                runner.execute(batch)
            taken[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def _num_blocks(num_tokens: int) -> int:
    return -(-num_tokens // _BLOCK_SIZE)


def _sequence(num_tokens: int, blocks: Iterator[int]) -> Sequence:
    """A greedy sequence with this number of tokens, different from all others."""
    seq_id = next(_seq_ids)
    prompt = tuple(1000 + (7 * position + 97 * seq_id) % 5000 for position in range(num_tokens))
    request = Request("bench", prompt, SamplingParams(temperature=0.0, max_tokens=1), frozenset())
    (sequence,) = choices_of(request, seq_id)
    sequence.block_table = [next(blocks) for _ in range(_num_blocks(num_tokens))]
    return sequence


def _load(backend: str, quantization: str, model: str, dtype: str, threads: int) -> Runner:
    from engine_svc.runners.model_runner import load_model_runner

    return load_model_runner(
        model=model,
        dtype=dtype,
        max_model_len=None,
        block_size=_BLOCK_SIZE,
        kv_cache_bytes=0,
        num_blocks=64 * _num_blocks(_CONTEXT),
        num_threads=threads,
        max_num_batched_tokens=512,
        attention_backend=backend,
        quantization=quantization,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a folder or .gguf file; default: SmolLM2")
    parser.add_argument("--dtype", default="auto", help="auto, float32 or bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--backends", nargs="+", default=list(_BACKENDS), choices=_BACKENDS)
    parser.add_argument("--quantization", default="none", choices=_QUANTIZATIONS, help="for all backends")
    parser.add_argument(
        "--compare", nargs="+", default=[], choices=_QUANTIZATIONS, help="quantizations to compare, on the cpu backend"
    )
    return parser.parse_args()


def _runners(args: argparse.Namespace) -> dict[str, Runner]:
    """By backend and compute format."""
    pairs = [("cpu", name) for name in args.compare] or [(name, args.quantization) for name in args.backends]
    model = args.model or str(default_model_file())
    loaded = [(backend, _load(backend, name, model, args.dtype, args.threads)) for backend, name in pairs]
    return {f"{backend} {runner.info.dtype}": runner for backend, runner in loaded}


def main() -> None:
    args = _arguments()
    set_openmp_wait_policy()
    runners = _runners(args)
    names = list(runners)
    print(f"| step | {' | '.join(f'{name}, ms' for name in runners)} | first / last |")
    print(f"|---|{'--:|' * (len(runners) + 1)}")
    for scenario in scenarios():
        found = measure(runners, scenario, args.rounds)
        figures = " | ".join(f"{found[name]:.1f}" for name in runners)
        print(f"| {scenario.name} | {figures} | {found[names[0]] / found[names[-1]]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
