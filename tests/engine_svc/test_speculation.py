"""Speculation is lossless: outputs are the same with it and without.

The model gives logits that are a function of the whole history, few tokens to choose from, and favours what followed
before; the sampler, the scheduler and the engine are the real ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine_svc.output import Sampled, TokenLogprobs
from engine_svc.request import Request, SamplingParams
from engine_svc.runners.interface import RunnerInfo
from engine_svc.sampling.sampler import Sampler
from engine_svc.scheduling.sequence import Sequence
from engine_svc.scheduling.speculation import Speculation
from engine_svc.scheduling.step import ScheduledSequence
from tests.engine_svc.given import Answer, Running, scheduler

VOCAB_SIZE = 7
EOS = 6


class HistoryModel:
    """A runner whose logits are a function of the tokens before; after ``broken_after`` they are NaN."""

    def __init__(self, num_blocks: int, *, broken_after: int | None = None) -> None:
        self._info = RunnerInfo("history", "history", "none", "none", VOCAB_SIZE, 1024, num_blocks, (EOS,))
        self._sampler = Sampler()
        self._broken_after = broken_after

    @property
    def info(self) -> RunnerInfo:
        return self._info

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        sampling = [entry for entry in batch if entry.samples]
        if not sampling:
            return []
        rows = [
            self._logits([*entry.sequence.token_ids, *entry.drafts[:count]])
            for entry in sampling
            for count in range(len(entry.drafts) + 1)
        ]
        drafts = [entry.drafts for entry in sampling]
        return self._sampler.sample(torch.tensor(rows), [entry.sequence for entry in sampling], drafts)

    def release(self, sequence: Sequence) -> None:
        self._sampler.release(sequence)

    def _logits(self, history: list[int]) -> list[float]:
        if history[-1] == self._broken_after:
            return [math.nan] * VOCAB_SIZE
        # Mostly a function of the last two tokens, so that loops arise; a little of where they are.
        pair, place = history[-2] * VOCAB_SIZE + history[-1], len(history)
        return [math.sin(pair * 7.3 + token * 3.1) * 3 + math.sin(place + token * 1.7) for token in range(VOCAB_SIZE)]


@dataclass(frozen=True)
class Pool:
    """The limits of an engine."""

    num_blocks: int
    block_size: int
    chunk: int
    max_num_seqs: int
    caching: bool
    max_num_batched_tokens: int = 64

    def run(self, requests: list[Request], speculation: Speculation | None, **model: Any) -> Running:
        """Requests come one by one, with a step between."""
        running = Running(
            HistoryModel(self.num_blocks, **model),
            scheduler(
                self.num_blocks, self.block_size, max_num_seqs=self.max_num_seqs, chunk=self.chunk,
                max_num_batched_tokens=self.max_num_batched_tokens, caching=self.caching, speculation=speculation,
            ),
        )  # fmt: skip
        for request in requests:
            running.add(request)
            running.step()
        running.run()
        assert running.scheduler.num_free_blocks == self.num_blocks
        return running


tokens = st.integers(0, VOCAB_SIZE - 1)
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    top_p=st.sampled_from([1.0, 0.8]),
    top_k=st.sampled_from([0, 3]),
    min_p=st.sampled_from([0.0, 0.1]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.3]),
    presence_penalty=st.sampled_from([0.0, 0.0, -0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.2]),
    max_tokens=st.integers(1, 40),
    min_tokens=st.sampled_from([0, 1, 12]),
    stop_token_ids=st.frozensets(tokens, max_size=1),
    ignore_eos=st.booleans(),
    n=st.sampled_from([1, 1, 2, 3]),
    logprobs=st.sampled_from([None, 0, 2]),
    seed=st.integers(0, 5),
    logit_bias=st.sampled_from([(), ((1, 2.0),), ((EOS, -100.0),)]),
)
requests = st.builds(
    Request,
    request_id=st.just("r"),
    prompt_token_ids=st.lists(tokens, min_size=2, max_size=20).map(tuple),
    sampling_params=params,
    eos_token_ids=st.just(frozenset([EOS])),
)
pools = st.builds(
    Pool,
    num_blocks=st.just(20),
    block_size=st.sampled_from([3, 4]),
    chunk=st.sampled_from([2, 5, 64]),
    max_num_seqs=st.sampled_from([1, 4, 8]),
    caching=st.booleans(),
    max_num_batched_tokens=st.sampled_from([8, 64]),
)
speculations = st.builds(Speculation, num_tokens=st.sampled_from([1, 3, 8]), max_step_tokens=st.sampled_from([4, 64]))


def said(answer: Answer, index: int) -> tuple[list[int], list[TokenLogprobs], Any, Any]:
    """The whole output of a choice, independent of its chunks."""
    chunks = [chunk for chunk in answer.chunks if chunk.index == index]
    logprobs = [one for chunk in chunks for one in chunk.logprobs]
    return answer.token_ids[index], logprobs, chunks[-1].finish_reason, chunks[-1].matched_token_id


def all_outputs(running: Running) -> list[Any]:
    return [[said(answer, index) for index in sorted(answer.token_ids)] for answer in running.answers.values()]


LOOPING = Request("r", (1, 2), SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True, logprobs=1))


@settings(max_examples=60)
@given(st.lists(requests, min_size=1, max_size=4), pools, speculations)
@example([LOOPING] * 3, Pool(20, 4, 64, 8, caching=True), Speculation(8, 64))
def test_answers_are_the_same_with_speculation_and_without(
    given_requests: list[Request], pool: Pool, speculation: Speculation
) -> None:
    plain = pool.run(given_requests, None)
    speculative = pool.run(given_requests, speculation)

    assert all_outputs(speculative) == all_outputs(plain)
    for answer, request in zip(speculative.answers.values(), given_requests, strict=True):
        assert answer.error is None
        if request.sampling_params.logprobs is not None:
            assert all(len(chunk.logprobs) == len(chunk.token_ids) for chunk in answer.chunks)
    for name in ("generation_tokens", "prompt_tokens"):
        assert speculative.sample(f"vllm:{name}_total") == plain.sample(f"vllm:{name}_total")


def test_a_loop_takes_fewer_steps() -> None:
    pool = Pool(20, 4, 64, 8, caching=True)

    plain, speculative = pool.run([LOOPING], None), pool.run([LOOPING], Speculation(8, 64))

    plain_steps, steps = (one.sample("pellucid_engine_step_seconds_count") for one in (plain, speculative))
    assert plain_steps == 40
    assert steps < 32
    assert speculative.sample("vllm:spec_decode_num_accepted_tokens_total") == 40 - steps


def test_preempted_answers_are_the_same() -> None:
    pool = Pool(20, 4, 64, 8, caching=False)
    given_requests = [
        Request("r", (number, 2, 3), SamplingParams(temperature=0.3, seed=number, max_tokens=60, ignore_eos=True))
        for number in range(3)
    ]

    plain, speculative = pool.run(given_requests, None), pool.run(given_requests, Speculation(8, 64))

    assert all_outputs(speculative) == all_outputs(plain)
    assert speculative.sample("vllm:num_preemptions_total") > 0
    assert speculative.sample("vllm:spec_decode_num_accepted_tokens_total") > 0


@settings(max_examples=30)
@given(st.lists(requests, min_size=1, max_size=3), st.integers(0, VOCAB_SIZE - 1), speculations)
def test_a_fault_comes_at_the_same_token(
    given_requests: list[Request], broken_after: int, speculation: Speculation
) -> None:
    """Also after accepted drafts; rejected drafts cause no fault."""
    pool = Pool(60, 4, 64, 8, caching=True)

    plain = pool.run(given_requests, None, broken_after=broken_after)
    speculative = pool.run(given_requests, speculation, broken_after=broken_after)

    for answer, other, request in zip(
        plain.answers.values(), speculative.answers.values(), given_requests, strict=True
    ):
        assert (answer.error is None) == (other.error is None)
        if request.sampling_params.n == 1 or answer.error is None:
            assert answer.token_ids == other.token_ids
