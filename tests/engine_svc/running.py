"""Runs requests on a runner through the real engine and scheduler, without a thread or gRPC."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine_svc.request import Request, SamplingParams
from engine_svc.runners.interface import Runner
from engine_svc.runners.model_runner import load_model_runner
from tests.engine_svc.given import Answer, Running, scheduler

BLOCK_SIZE = 4


def load(model: str, **changes: Any) -> Runner:
    """A runner in float32 with 64 small blocks, on one thread."""
    options: dict[str, Any] = {
        "dtype": "float32",
        "max_model_len": None,
        "block_size": BLOCK_SIZE,
        "kv_cache_bytes": 0,
        "num_blocks": 64,
        "num_threads": 1,
        "max_num_batched_tokens": 4096,
        "attention_backend": "auto",
    }
    return load_model_runner(model=model, **(options | changes))


def greedy(prompt: Iterable[int], max_tokens: int, **params: Any) -> Request:
    """A greedy request that runs to ``max_tokens``."""
    given: dict[str, Any] = {"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True}
    return Request("r", tuple(prompt), SamplingParams(**(given | params)))


def run(runner: Runner, requests: Iterable[Request], **options: Any) -> list[Answer]:
    """Run all requests together until they finish; options are those of ``given.scheduler``."""
    defaults: dict[str, Any] = {
        "num_blocks": runner.info.num_blocks,
        "block_size": BLOCK_SIZE,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 4096,
        "chunk": 4096,
        "caching": False,
    }
    running = Running(runner, scheduler(**(defaults | options)))
    ids = [running.add(request) for request in requests]
    running.run()
    return [running.answers[one] for one in ids]


def outputs(answers: Iterable[Answer]) -> list[list[int]]:
    """The tokens of every choice; none may have failed."""
    found = []
    for answer in answers:
        assert answer.error is None
        found += [answer.token_ids[index] for index in sorted(answer.token_ids)]
    return found


def num_preemptions(answers: Iterable[Answer]) -> int:
    return sum(answer.stats.num_preemptions for answer in answers if answer.stats is not None)
