"""Random requests and schedules, for tests that outputs do not depend on the schedule."""

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
"""Every sampling parameter."""


@dataclass(frozen=True, slots=True)
class Result:
    """The parts of an output that must not depend on the schedule, choice by choice."""

    token_ids: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[TokenLogprobs, ...], ...]
    prompt: tuple[tuple[int, TokenLogprobs], ...]

    def after(self, count: int) -> Result:
        """The rest of the only choice after this many tokens."""
        return Result((self.token_ids[0][count:],), (self.logprobs[0][count:],), self.prompt)


def result_of(answer: Answer) -> Result:
    assert answer.error is None
    indices = sorted(answer.token_ids)
    chunks = [[chunk for chunk in answer.chunks if chunk.index == index] for index in indices]
    return Result(
        tuple(tuple(answer.token_ids[index]) for index in indices),
        tuple(tuple(entry for chunk in of_choice for entry in chunk.logprobs) for of_choice in chunks),
        tuple(zip(answer.prompt_token_ids, answer.prompt_logprobs, strict=True)),
    )


def random_requests(chance: Random, *, vocab_size: int, most_prompt: int, most_output: int) -> list[Request]:
    """One for each of ``PARAMS``; half of the prompts begin alike."""
    beginning = [chance.randrange(vocab_size) for _ in range(most_prompt // 2)]
    requests = []
    for params in PARAMS:
        tail = [chance.randrange(vocab_size) for _ in range(chance.randint(1, most_prompt // 2))]
        count = chance.randint(most_output // 2, most_output)
        given = SamplingParams(max_tokens=count, min_tokens=count, seed=chance.randrange(2**53), **params)
        prompt = [*beginning, *tail] if chance.random() < 0.5 else tail
        requests.append(Request("r", tuple(prompt), given, frozenset([2])))
    return requests


def alone(runner: Runner, requests: Iterable[Request], *, block_size: int) -> list[Result]:
    """The output of each request alone, with its prompt computed at once and nothing cached."""
    return [result_of(*run(runner, [request], block_size=block_size)) for request in requests]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Limits, and the arrivals of requests."""

    limits: dict[str, Any]
    arrivals: list[tuple[int, int]]
    """Step and number of a request, in order; a request may come more than once."""
    cuts: list[int]
    """The number of output tokens after which each arrival is resumed; 0: a new request."""


def random_schedule(
    chance: Random, requests: list[Request], expected: list[Result], *, block_size: int, tight: bool, caching: bool
) -> Schedule:
    """With ``tight`` there are few blocks and a large ``max_num_seqs``, so that sequences are preempted."""
    max_num_seqs = 8 if tight else chance.choice([2, 3, 8])
    limits = {
        "block_size": block_size,
        "num_blocks": _least_blocks(requests, block_size) if tight else 256,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": chance.choice([max_num_seqs, 17, 64, 512]),
        "chunk": chance.choice([2, 3, 7, 33, 512]),
        "caching": caching,
        "speculation": chance.choice([None, Speculation(4, 64)]),
    }
    numbers = [*range(len(requests)), *chance.choices(range(len(requests)), k=len(requests) // 2)]
    chance.shuffle(numbers)
    if tight:  # all at once, and many small ones begin together and grow
        arrivals = [(0, number) for number in sorted(numbers, key=lambda n: len(requests[n].prompt_token_ids))]
    else:
        arrivals = sorted((chance.choice([0, 0, chance.randint(1, 25)]), number) for number in numbers)
    cuts = [_random_cut(chance, expected[number]) if place % 2 else 0 for place, (_, number) in enumerate(arrivals)]
    return Schedule(limits, arrivals, cuts)


def _least_blocks(requests: list[Request], block_size: int) -> int:
    longest = max(len(request.prompt_token_ids) + request.sampling_params.max_tokens for request in requests)
    return -(-longest // block_size)


def _random_cut(chance: Random, expected: Result) -> int:
    """Within the output of a request with one choice."""
    return chance.randrange(1, len(expected.token_ids[0])) if len(expected.token_ids) == 1 else 0


@dataclass(slots=True)
class Seen:
    """Counts of the events that must not change an output."""

    preemptions: int = 0
    cached_tokens: int = 0
    resumed: int = 0
    drafts: int = 0
    """Accepted draft tokens."""

    @property
    def everything(self) -> bool:
        return min(self.preemptions, self.cached_tokens, self.resumed, self.drafts) > 0


def play(
    runner: Runner, schedule: Schedule, requests: list[Request], expected: list[Result], seen: Seen
) -> Iterable[tuple[Result, Result]]:
    """Run the requests as scheduled; returns each output and the expected one."""
    running = Running(runner, scheduler(**schedule.limits))
    waiting = list(zip(schedule.arrivals, schedule.cuts, strict=True))
    started: list[tuple[int, Result]] = []
    step = 0
    while waiting or not all(running.answers[group].is_over for group, _ in started):
        while waiting and waiting[0][0][0] <= step:
            (_, number), cut = waiting.pop(0)
            resumed = replace(requests[number], output_token_ids=expected[number].token_ids[0][:cut])
            started.append((running.add(resumed), expected[number].after(cut) if cut else expected[number]))
            seen.resumed += cut > 0
        running.step()
        step += 1
    for answer in running.answers.values():
        assert answer.stats is not None
        seen.preemptions += answer.stats.num_preemptions
        seen.cached_tokens += answer.heads[0].num_cached_tokens
        seen.drafts += sum(max(0, len(chunk.token_ids) - 1) for chunk in answer.chunks)
    return [(result_of(running.answers[group]), wanted) for group, wanted in started]
