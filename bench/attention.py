"""Time of attention: the reference backend, the compiled kernel, and the kernel with an int8 KV cache.

    python -m bench.attention                    # the shape of SmolLM2-135M, bfloat16
    python -m bench.attention --dtype float32
    python -m bench.attention --prompts          # whole prompts, against torch's scaled_dot_product_attention

Without ``--prompts``: one step over all layers. With ``--prompts``: one layer, over prompts that are new in one step,
or in steps of ``--chunk`` tokens as the engine computes them. SDPA gets the whole prompt, with the KV heads repeated
beforehand.

Prints a Markdown table with the minimum over alternating rounds, because other load on the machine can only add to the
time. ``--cpu-time`` counts the time of this process's threads instead of wall time, for busy machines: with one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_svc.attention.backends import create_backend, find_kernels
from engine_svc.attention.interface import AttentionBackend, AttentionConfig, PagedBatch

_BLOCK_SIZE: Final = 16
_CASES: Final = ((1, 1, 256), (4, 1, 256), (16, 1, 256), (32, 1, 256), (1, 1, 4096), (1, 256, 256), (1, 256, 1024))
"""Sequences, new tokens per sequence, context length per sequence"""
_PROMPTS: Final = (1000, 4000, 16_000)

Attend = Callable[[], object]


def batch(num_sequences: int, num_new: int, context: int) -> PagedBatch:
    """Sequences with blocks at random places in the cache."""
    blocks = torch.randperm(num_sequences * -(-context // _BLOCK_SIZE)).view(num_sequences, -1)
    return _batch(blocks, context - num_new, context)


def chunks(length: int, size: int) -> list[PagedBatch]:
    """The steps of one prompt."""
    blocks = torch.randperm(-(-length // _BLOCK_SIZE))[None]
    bounds = [*range(0, length, size), length]
    return [_batch(blocks, start, end) for start, end in pairwise(bounds)]


def _batch(blocks: Tensor, start: int, end: int) -> PagedBatch:
    positions = torch.arange(start, end)
    slots = blocks[:, positions // _BLOCK_SIZE] * _BLOCK_SIZE + positions % _BLOCK_SIZE
    starts = torch.arange(len(blocks) + 1) * (end - start)
    return PagedBatch(slots.flatten(), starts.int(), torch.full((len(blocks),), end).int(), blocks.int())


def _inputs(config: AttentionConfig, num_tokens: int) -> tuple[Tensor, ...]:
    """Query, key and value"""
    heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    return tuple(torch.randn(num_tokens, count, config.head_dim).to(config.dtype) for count in heads)


def _backend(name: str, config: AttentionConfig, num_blocks: int) -> AttentionBackend:
    return create_backend(name, config, find_kernels(name), num_blocks=num_blocks, block_size=_BLOCK_SIZE)


def _attend(
    backend: AttentionBackend, num_layers: int, steps: Sequence[PagedBatch], inputs: tuple[Tensor, ...]
) -> None:
    sizes = [len(step.slot_mapping) for step in steps]
    for given, *parts in zip(steps, *(torch.split(x, sizes) for x in inputs), strict=True):
        step = backend.begin(given)
        for layer in range(num_layers):
            step.attend(layer, *parts)


def of_backends(config: AttentionConfig, steps: Sequence[PagedBatch], inputs: tuple[Tensor, ...]) -> dict[str, Attend]:
    """What is measured, by column"""
    num_blocks = steps[0].block_tables.numel()
    int8 = replace(config, int8_cache=True)
    backends = {
        "reference": _backend("reference", config, num_blocks),
        "cpu": _backend("cpu", config, num_blocks),
        "cpu, int8 cache": _backend("cpu", int8, num_blocks),
    }
    return {name: partial(_attend, b, config.num_layers, steps, inputs) for name, b in backends.items()}


def sdpa(config: AttentionConfig, inputs: tuple[Tensor, ...]) -> Attend:
    """Causal attention over a whole prompt by torch."""
    group = config.num_heads // config.num_kv_heads
    query, key, value = (x.transpose(0, 1) for x in inputs)
    query = query.contiguous()[None]
    key, value = (x.repeat_interleave(group, dim=0)[None] for x in (key, value))
    return lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True)


def milliseconds(attends: dict[str, Attend], rounds: int, clock: Callable[[], float]) -> list[float]:
    """Minimum over the rounds, in which all take turns."""

    def taken(attend: Attend) -> float:
        started = clock()
        attend()
        return clock() - started

    found = [[taken(attend) for attend in attends.values()] for _ in range(rounds)]
    return [1000 * min(times) for times in zip(*found, strict=True)]


def _row(label: str, figures: list[float]) -> None:
    print(f"| {label} | {' | '.join(f'{figure:.1f}' for figure in figures)} |", flush=True)


def _header(label: str, columns: Sequence[str]) -> None:
    print(f"| {label} | {', ms | '.join(columns)}, ms |\n|---|{'--:|' * len(columns)}")


def measure_steps(config: AttentionConfig, rounds: int, clock: Callable[[], float]) -> None:
    for number, case in enumerate(_CASES):
        given = batch(*case)
        attends = of_backends(config, [given], _inputs(config, len(given.slot_mapping)))
        if number == 0:
            _header(f"{config.dtype}: sequences, new tokens, context", list(attends))
        _row(", ".join(map(str, case)), milliseconds(attends, rounds, clock))


def measure_prompts(
    config: AttentionConfig, lengths: Sequence[int], chunk: int, rounds: int, clock: Callable[[], float]
) -> None:
    for number, length in enumerate(lengths):
        inputs = _inputs(config, length)
        whole = of_backends(config, chunks(length, length), inputs)
        in_chunks = of_backends(config, chunks(length, chunk), inputs)
        attends = {
            "SDPA": sdpa(config, inputs),
            "cpu": whole["cpu"],
            "cpu, int8 cache": whole["cpu, int8 cache"],
            "cpu, chunks": in_chunks["cpu"],
            "cpu, int8 cache, chunks": in_chunks["cpu, int8 cache"],
        }
        if number == 0:
            _header(f"{config.dtype}: tokens", list(attends))
        _row(str(length), milliseconds(attends, rounds, clock))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--layers", type=int, default=30, help="without --prompts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--prompts", nargs="*", type=int, metavar="TOKENS", help=f"default: {_PROMPTS}")
    parser.add_argument("--chunk", type=int, default=256)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = _arguments(argv)
    torch.set_num_threads(args.threads)
    dtype: torch.dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[args.dtype]
    num_layers = args.layers if args.prompts is None else 1
    config = AttentionConfig(args.heads, args.kv_heads, args.head_dim, dtype, (None,) * num_layers)
    clock = time.process_time if args.cpu_time else time.perf_counter
    with torch.inference_mode():
        if args.prompts is None:
            measure_steps(config, args.rounds, clock)
        else:
            measure_prompts(config, args.prompts or _PROMPTS, args.chunk, args.rounds, clock)


if __name__ == "__main__":
    main()
