"""Time of attention over all layers of one step: the compiled kernel and the reference backend, on the same batch.

    python -m bench.attention                    # the shape of SmolLM2-135M, bfloat16
    python -m bench.attention --dtype float32

Prints a Markdown table with the minimum over the rounds, because other load on the machine can only add to the time.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

import torch
from torch import Tensor

from engine_svc.attention.backends import create_backend, find_kernels
from engine_svc.attention.interface import AttentionBackend, AttentionConfig, PagedBatch

_BACKENDS: Final = ("reference", "cpu")
_BLOCK_SIZE: Final = 16
_CASES: Final = ((1, 1, 256), (4, 1, 256), (16, 1, 256), (32, 1, 256), (1, 1, 4096), (1, 256, 256), (1, 256, 1024))
"""Sequences, new tokens per sequence, context length per sequence"""


def batch(num_sequences: int, num_new: int, context: int) -> PagedBatch:
    """Sequences with blocks at random places in the cache."""
    blocks = torch.randperm(num_sequences * -(-context // _BLOCK_SIZE)).view(num_sequences, -1)
    positions = torch.arange(context - num_new, context)
    slots = blocks[:, positions // _BLOCK_SIZE] * _BLOCK_SIZE + positions % _BLOCK_SIZE
    starts = torch.arange(num_sequences + 1) * num_new
    return PagedBatch(slots.flatten(), starts.int(), torch.full((num_sequences,), context).int(), blocks.int())


def seconds(backend: AttentionBackend, num_layers: int, given: PagedBatch, inputs: tuple[Tensor, ...]) -> float:
    started = time.perf_counter()
    step = backend.begin(given)
    for layer in range(num_layers):
        step.attend(layer, *inputs)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype: torch.dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[args.dtype]
    config = AttentionConfig(args.heads, args.kv_heads, args.head_dim, dtype, (None,) * args.layers)
    print(
        f"| {args.dtype}: sequences, new tokens, context | {', ms | '.join(_BACKENDS)}, ms | ratio |\n|---|--:|--:|--:|"
    )
    for case in _CASES:
        given = batch(*case)
        num_tokens, num_blocks = len(given.slot_mapping), given.block_tables.numel()
        inputs = tuple(
            torch.randn(num_tokens, heads, args.head_dim).to(dtype)
            for heads in (args.heads, args.kv_heads, args.kv_heads)
        )
        backends = {
            name: create_backend(name, config, find_kernels(name), num_blocks=num_blocks, block_size=_BLOCK_SIZE)
            for name in _BACKENDS
        }
        rounds = [[seconds(b, args.layers, given, inputs) for b in backends.values()] for _ in range(args.rounds)]
        reference, kernel = (1000 * min(taken) for taken in zip(*rounds, strict=True))
        print(
            f"| {', '.join(map(str, case))} | {reference:.1f} | {kernel:.1f} | {reference / kernel:.1f} |", flush=True
        )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
