"""Random requests and random schedules, for tests that outputs do not depend on the schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from engine_svc.output import TokenLogprobs
from engine_svc.request import Request, SamplingParams
from engine_svc.runners.interface import Runner
from engine_svc.scheduling.speculation import Speculation
from tests.engine_svc.given import Answer, Running, scheduler
from tests.engine_svc.running import run

PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "logprobs": 3, "prompt_logprobs": 2},
    {"temperature": 0.8, "top_p": 0.9, "logprobs": 0},
    {"temperature": 1.0, "top_k": 20, "min_p": 0.02, "presence_penalty": 0.7},
    {"temperature": 1.3, "frequency_penalty": 0.6, "prompt_logprobs": 0},
    {"temperature": 0.0, "repetition_penalty": 1.3, "logit_bias": ((5, 3.0), (11, -4.0)), "logprobs": 5},
    {"temperature": 0.7, "n": 3, "repetition_penalty": 0.9, "prompt_logprobs": 5, "logprobs": 1},
]
"""Sampling parameters that cover all features of the sampler."""


@dataclass(frozen=True, slots=True)
class Output:
    """The parts of an output that must not depend on the schedule, per choice."""

    token_ids: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[TokenLogprobs, ...], ...]
    prompt: tuple[tuple[int, TokenLogprobs], ...]

    def after(self, count: int) -> Output:
        """The output of a request with one choice that is resumed after ``count`` tokens."""
        return Output((self.token_ids[0][count:],), (self.logprobs[0][count:],), self.prompt)


def output_of(answer: Answer) -> Output:
    assert answer.error is None
    indices = sorted(answer.token_ids)
    chunks = [[chunk for chunk in answer.chunks if chunk.index == index] for index in indices]
    return Output(
        tuple(tuple(answer.token_ids[index]) for index in indices),
        tuple(tuple(entry for chunk in of_choice for entry in chunk.logprobs) for of_choice in chunks),
        tuple(zip(answer.prompt_token_ids, answer.prompt_logprobs, strict=True)),
    )


def random_requests(rng: Random, *, vocab_size: int, max_prompt: int, max_output: int) -> list[Request]:
    """One request for each of ``PARAMS``; about half of the prompts share a prefix."""
    prefix = [rng.randrange(vocab_size) for _ in range(max_prompt // 2)]
    requests = []
    for params in PARAMS:
        tail = [rng.randrange(vocab_size) for _ in range(rng.randint(1, max_prompt // 2))]
        count = rng.randint(max_output // 2, max_output)
        given = SamplingParams(max_tokens=count, min_tokens=count, seed=rng.randrange(2**53), **params)
        prompt = [*prefix, *tail] if rng.random() < 0.5 else tail
        requests.append(Request("r", tuple(prompt), given, frozenset([2])))
    return requests


def run_alone(runner: Runner, requests: Iterable[Request], *, block_size: int) -> list[Output]:
    """The output of each request run alone, without chunked prefill and prefix caching."""
    return [output_of(*run(runner, [request], block_size=block_size)) for request in requests]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Scheduler limits, and arrivals of requests."""

    limits: dict[str, Any]
    arrivals: list[tuple[int, int]]
    """(step, index of a request), in order; a request may arrive more than once."""
    resume_points: list[int]
    """For each arrival, the number of output tokens after which it is resumed; 0: not resumed."""


def random_schedule(
    rng: Random, requests: list[Request], expected: list[Output], *, block_size: int, tight: bool, caching: bool
) -> Schedule:
    """With ``tight`` there are few blocks and many sequences per step, so that sequences are preempted."""
    max_num_seqs = 8 if tight else rng.choice([2, 3, 8])
    limits = {
        "block_size": block_size,
        "num_blocks": _min_blocks(requests, block_size) if tight else 256,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": rng.choice([max_num_seqs, 17, 64, 512]),
        "chunk": rng.choice([2, 3, 7, 33, 512]),
        "caching": caching,
        "speculation": rng.choice([None, Speculation(4, 64)]),
    }
    numbers = [*range(len(requests)), *rng.choices(range(len(requests)), k=len(requests) // 2)]
    rng.shuffle(numbers)
    if tight:  # all arrive at once, shortest prompts first, so that many start together and grow
        arrivals = [(0, number) for number in sorted(numbers, key=lambda n: len(requests[n].prompt_token_ids))]
    else:
        arrivals = sorted((rng.choice([0, 0, rng.randint(1, 25)]), number) for number in numbers)
    resume_points = [
        _random_resume_point(rng, expected[number]) if index % 2 else 0 for index, (_, number) in enumerate(arrivals)
    ]
    return Schedule(limits, arrivals, resume_points)


def _min_blocks(requests: list[Request], block_size: int) -> int:
    longest = max(len(request.prompt_token_ids) + request.sampling_params.max_tokens for request in requests)
    return -(-longest // block_size)


def _random_resume_point(rng: Random, expected: Output) -> int:
    """A position within the output; 0 for a request with several choices."""
    return rng.randrange(1, len(expected.token_ids[0])) if len(expected.token_ids) == 1 else 0


@dataclass(slots=True)
class Coverage:
    """Counts of the events that must not change outputs."""

    preemptions: int = 0
    cached_tokens: int = 0
    resumed: int = 0
    drafts: int = 0
    """Accepted draft tokens"""

    @property
    def is_complete(self) -> bool:
        return min(self.preemptions, self.cached_tokens, self.resumed, self.drafts) > 0


def run_schedule(
    runner: Runner, schedule: Schedule, requests: list[Request], expected: list[Output], coverage: Coverage
) -> Iterable[tuple[Output, Output]]:
    """Run a schedule; returns the actual and the expected output of each arrival."""
    running = Running(runner, scheduler(**schedule.limits))
    waiting = list(zip(schedule.arrivals, schedule.resume_points, strict=True))
    started: list[tuple[int, Output]] = []
    step = 0
    while waiting or not all(running.answers[group].is_over for group, _ in started):
        while waiting and waiting[0][0][0] <= step:
            (_, number), resume_at = waiting.pop(0)
            resumed = replace(requests[number], output_token_ids=expected[number].token_ids[0][:resume_at])
            started.append((running.add(resumed), expected[number].after(resume_at) if resume_at else expected[number]))
            coverage.resumed += resume_at > 0
        running.step()
        step += 1
    for answer in running.answers.values():
        assert answer.stats is not None
        coverage.preemptions += answer.stats.num_preemptions
        coverage.cached_tokens += answer.heads[0].num_cached_tokens
        coverage.drafts += sum(max(0, len(chunk.token_ids) - 1) for chunk in answer.chunks)
    return [(output_of(running.answers[group]), expected_output) for group, expected_output in started]
