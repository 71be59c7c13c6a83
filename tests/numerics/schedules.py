"""Random requests, and random ways to schedule them, for tests that nothing of a schedule is seen in an answer."""

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
"""Everything that a request can ask of the sampler."""


@dataclass(frozen=True, slots=True)
class Said:
    """All that a client is told which must not depend on a schedule, choice by choice."""

    token_ids: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[TokenLogprobs, ...], ...]
    prompt: tuple[tuple[int, TokenLogprobs], ...]

    def after(self, count: int) -> Said:
        """What is left of the only choice after so many tokens."""
        return Said((self.token_ids[0][count:],), (self.logprobs[0][count:],), self.prompt)


def said(answer: Answer) -> Said:
    assert answer.error is None
    indices = sorted(answer.token_ids)
    chunks = [[chunk for chunk in answer.chunks if chunk.index == index] for index in indices]
    return Said(
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


def alone(runner: Runner, requests: Iterable[Request], *, block_size: int) -> list[Said]:
    """What each request is told when there is no other, its prompt is computed at once and nothing is cached."""
    return [said(*run(runner, [request], block_size=block_size)) for request in requests]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Limits, and when who comes."""

    limits: dict[str, Any]
    arrivals: list[tuple[int, int]]
    """Step and number of a request, in order; a request may come more than once."""
    cuts: list[int]
    """After how many tokens each arrival is resumed; 0: it is fresh."""


def random_schedule(
    chance: Random, requests: list[Request], expected: list[Said], *, block_size: int, tight: bool, caching: bool
) -> Schedule:
    """With ``tight`` there are few blocks and many places, so that sequences are preempted."""
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


def _random_cut(chance: Random, expected: Said) -> int:
    """Within the output of a request with one choice."""
    return chance.randrange(1, len(expected.token_ids[0])) if len(expected.token_ids) == 1 else 0


@dataclass(slots=True)
class Seen:
    """How often the things happened that must change nothing."""

    preemptions: int = 0
    cached_tokens: int = 0
    resumed: int = 0
    drafts: int = 0
    """Guessed tokens that were right."""

    @property
    def everything(self) -> bool:
        return min(self.preemptions, self.cached_tokens, self.resumed, self.drafts) > 0


def play(
    runner: Runner, schedule: Schedule, requests: list[Request], expected: list[Said], seen: Seen
) -> Iterable[tuple[Said, Said]]:
    """Run the requests as scheduled: what each was told, and what it had to be told."""
    running = Running(runner, scheduler(**schedule.limits))
    waiting = list(zip(schedule.arrivals, schedule.cuts, strict=True))
    started: list[tuple[int, Said]] = []
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
    return [(said(running.answers[group]), wanted) for group, wanted in started]
