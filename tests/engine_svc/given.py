"""Builders for the inputs of tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from prometheus_client import CollectorRegistry

from engine_svc.engine import Engine
from engine_svc.metrics import EngineMetrics
from engine_svc.output import ChoiceOutput, RequestHead, RequestOutput, RequestStats, TokenLogprobs
from engine_svc.request import FinishReason, Request, SamplingParams, Script
from engine_svc.runners.interface import Runner
from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.pace import Pace
from engine_svc.scheduling.scheduler import Scheduler
from engine_svc.scheduling.sequence import Sequence, choices_of
from engine_svc.scheduling.speculation import Speculation
from engine_svc.scheduling.step import Plan, StepLimits
from svclib.errors import ServiceError

EOS = 0

_seq_ids = count(1_000_000)


def request(
    prompt: Iterable[int] | int = 4,
    max_tokens: int = 4,
    *,
    n: int = 1,
    min_tokens: int = 0,
    stop: Iterable[int] = (),
    eos: Iterable[int] = (EOS,),
    ignore_eos: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
    logprobs: int | None = None,
    prompt_logprobs: int | None = None,
    script: Script | None = None,
    open_ended: bool = False,
    name: str = "r",
    output: Iterable[int] = (),
) -> Request:
    """A request; an integer as the prompt is its length."""
    tokens = range(1, prompt + 1) if isinstance(prompt, int) else prompt
    params = SamplingParams(
        max_tokens=max_tokens, n=n, min_tokens=min_tokens, stop_token_ids=frozenset(stop), ignore_eos=ignore_eos,
        temperature=temperature, seed=seed, logprobs=logprobs, prompt_logprobs=prompt_logprobs,
    )  # fmt: skip
    return Request(name, tuple(tokens), params, frozenset(eos), script, 1.0, open_ended, output_token_ids=tuple(output))


def sequence(prompt: Iterable[int] | int = 4, max_tokens: int = 4) -> Sequence:
    """A new sequence."""
    return choices_of(request(prompt, max_tokens), next(_seq_ids))[0]


def scheduler(
    num_blocks: int = 64,
    block_size: int = 4,
    *,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    chunk: int = 64,
    caching: bool = True,
    speculation: Speculation | None = None,
    pace: Pace | None = None,
) -> Scheduler:
    blocks = BlockManager(num_blocks, block_size, model="m", enable_prefix_caching=caching)
    return CheckedScheduler(StepLimits(max_num_seqs, max_num_batched_tokens, chunk), blocks, speculation, pace)


class CheckedScheduler(Scheduler):
    """A scheduler that asserts the limits of every step."""

    def schedule(self, now: float) -> Plan:
        plan = super().schedule(now)
        num_tokens = sum(entry.num_tokens for entry in plan.batch)
        assert num_tokens == plan.num_tokens <= self._limits.max_num_batched_tokens
        return plan


@dataclass
class Answer:
    """All outputs of one request."""

    token_ids: dict[int, list[int]] = field(default_factory=dict)
    finish_reasons: dict[int, FinishReason] = field(default_factory=dict)
    chunks: list[ChoiceOutput] = field(default_factory=list)
    heads: list[RequestHead] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    stats: RequestStats | None = None
    error: ServiceError | None = None

    def add(self, output: RequestOutput) -> None:
        assert not self.is_over, "an output after the last one"
        for choice in output.choices:
            assert choice.index not in self.finish_reasons, "a choice went on after its end"
            self.chunks.append(choice)
            if choice.prompt is not None:
                assert not self.token_ids.get(choice.index), "the prompt is told before the output"
                self.prompt_token_ids += choice.prompt.token_ids
                self.prompt_logprobs += choice.prompt.logprobs
            self.token_ids.setdefault(choice.index, []).extend(choice.token_ids)
            if choice.finish_reason is not None:
                self.finish_reasons[choice.index] = choice.finish_reason
        if output.head is not None:
            self.heads.append(output.head)
        self.stats, self.error = output.stats, output.error

    @property
    def is_over(self) -> bool:
        return self.stats is not None or self.error is not None


class Running:
    """An engine without a thread, with an integrity check after every step and every command."""

    def __init__(self, runner: Runner, scheduler: Scheduler) -> None:
        self.registry = CollectorRegistry()
        self.scheduler = scheduler
        self.engine = Engine(runner, scheduler, EngineMetrics(self.registry, "m"))
        self.answers: dict[int, Answer] = {}
        self._next_id = 0

    def add(self, request: Request) -> int:
        group_id = self._next_id
        self._next_id += request.sampling_params.n
        self.answers[group_id] = Answer()
        self.engine.add(group_id, request)
        return group_id

    def abort(self, group_id: int) -> None:
        self.engine.abort(group_id)
        self.collect()

    def stop_choice(self, group_id: int, index: int) -> None:
        self.engine.stop_choice(group_id, index)
        self.collect()

    def step(self) -> bool:
        moved = self.engine.step()
        self.collect()
        return moved

    def run(self, *, at_most: int = 10_000) -> int:
        """Step until no sequence is due; returns the number of steps."""
        for number in range(at_most):
            if not self.step():
                return number
        raise AssertionError(f"still running after {at_most} steps")

    def collect(self) -> None:
        for output in self.engine.take_outputs():
            self.answers[output.group_id].add(output)
        self.scheduler.check_integrity()

    def sample(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(name, {"model_name": "m", **labels})
        assert value is not None, f"no sample {name} {labels}"
        return value
