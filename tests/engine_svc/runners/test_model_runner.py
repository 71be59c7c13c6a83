from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from engine_svc.attention import backends
from engine_svc.models.precision import resolve_dtype
from engine_svc.output import Sampled, TokenLogprobs
from engine_svc.request import Request, SamplingParams
from engine_svc.runners.interface import Runner
from engine_svc.scheduling.speculation import Speculation
from engine_svc.scheduling.step import ScheduledSequence
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import tiny
from tests.engine_svc.given import Answer
from tests.engine_svc.running import BLOCK_SIZE, greedy, load, num_preemptions, outputs, run
from tests.engine_svc.sampling.given import sequence

PROMPTS = [[5, 9, 11], list(range(10, 31)), [3], [7, 7, 7, 7], list(range(60, 47, -1))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Llama with grouped heads."""
    return tiny.save(tiny.random_model(tiny.llama()), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module", params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """The attention backend."""
    if request.param == "cpu":
        request.getfixturevalue("kernels")
    return str(request.param)


@pytest.fixture(scope="module")
def runner(folder: str, backend: str) -> Runner:
    return load(folder, attention_backend=backend)


def mixed() -> list[Request]:
    """Requests that use every feature of the sampler."""
    options: list[dict[str, Any]] = [
        {"temperature": 0.8, "seed": 42},
        {"temperature": 1.0, "top_p": 0.9, "repetition_penalty": 1.5, "logprobs": 2},
        {"repetition_penalty": 1.5, "frequency_penalty": 0.3},
        {"temperature": 1.2, "top_k": 20, "min_p": 0.01, "presence_penalty": 0.5, "n": 3, "seed": 1},
        {"logit_bias": ((4, 3.0),), "logprobs": 5},
    ]
    return [greedy(prompt, 16, **given) for prompt, given in zip(PROMPTS, options, strict=True)]


def test_what_was_loaded(runner: Runner, folder: str) -> None:
    info = runner.info

    assert (info.model_path, info.model_type, info.dtype) == (folder, "llama", "float32")
    assert (info.vocab_size, info.max_model_len, info.num_blocks) == (97, 128, 64)
    assert info.eos_token_ids == (2,)
    assert info.cache_dtype == "float32"
    assert not info.simulated


@pytest.mark.usefixtures("kernels")
def test_the_dtype_of_activations_and_of_the_cache_may_differ(folder: str) -> None:
    info = load(folder, dtype="auto", quantization="int8").info

    assert (info.dtype, info.cache_dtype) == ("int8", "bfloat16")


@pytest.mark.parametrize(
    "options",
    [
        {"max_num_seqs": 1},
        {"chunk": 1},
        {"chunk": 3},
        {"max_num_batched_tokens": 32, "chunk": 5},
        {"caching": True},
        {"num_blocks": 20},
        {"num_blocks": 12, "chunk": 2},
        {"num_blocks": 12, "caching": True},
    ],
)
def test_an_answer_is_the_same_however_it_is_scheduled(runner: Runner, options: dict[str, Any]) -> None:
    expected = [outputs(run(runner, [request])) for request in mixed()]

    answers = run(runner, mixed(), **options)

    assert [outputs([answer]) for answer in answers] == expected
    assert (num_preemptions(answers) > 0) == ("num_blocks" in options)


@pytest.mark.parametrize("block_size", [1, 2, 16])
def test_the_block_size_changes_nothing(folder: str, runner: Runner, backend: str, block_size: int) -> None:
    other = load(folder, attention_backend=backend, block_size=block_size, num_blocks=256)

    assert outputs(run(other, mixed(), block_size=block_size)) == outputs(run(runner, mixed()))


def test_a_prefix_from_the_cache_changes_nothing(runner: Runner) -> None:
    prompt = list(range(10, 40))
    expected = outputs(run(runner, [greedy(prompt, 10)]))

    first, second = run(runner, [greedy(prompt, 10), greedy(prompt, 10)], caching=True, max_num_seqs=1)

    assert outputs([first]) == outputs([second]) == expected
    assert [first.heads[0].num_cached_tokens, second.heads[0].num_cached_tokens] == [0, 28]


def test_the_order_of_a_batch_changes_nothing(runner: Runner) -> None:
    requests = mixed()
    expected = [outputs([answer]) for answer in run(runner, requests)]
    order = random.Random(3).sample(range(len(requests)), len(requests))

    answers = run(runner, [requests[index] for index in order])

    assert [outputs([answer]) for answer in answers] == [expected[index] for index in order]


@pytest.mark.parametrize(
    "options",
    [{}, {"max_num_seqs": 1}, {"num_blocks": 30, "caching": True}, {"chunk": 3, "max_num_batched_tokens": 32}],
)
def test_speculation_changes_nothing(runner: Runner, options: dict[str, Any]) -> None:
    requests = [*mixed(), *[greedy(prompt, 60) for prompt in PROMPTS]]
    expected = [outputs([answer]) for answer in run(runner, requests)]

    answers = run(runner, requests, speculation=Speculation(6, 24), **options)

    assert [outputs([answer]) for answer in answers] == expected


def test_steps_with_drafts_are_no_larger_than_others(folder: str, backend: str) -> None:
    small = load(folder, attention_backend=backend, max_num_batched_tokens=6)

    answers = run(
        small, [greedy([7] * 6, 60)] * 3, speculation=Speculation(8, 1024), max_num_batched_tokens=6, max_num_seqs=4
    )

    assert len(outputs(answers)) == 3
    assert max(len(chunk.token_ids) for answer in answers for chunk in answer.chunks) > 1


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    "given", [{"dtype": "float32"}, {"dtype": "bfloat16"}, {"dtype": "auto", "quantization": "int8"}], ids=str
)
def test_with_the_kernels_speculation_does_not_change_a_bit(folder: str, given: dict[str, Any]) -> None:
    runner = load(folder, **given)
    requests = [*mixed(), *[greedy(prompt, 60, logprobs=2) for prompt in PROMPTS]]

    plain = run(runner, requests)
    speculative = run(runner, requests, speculation=Speculation(6, 24), max_num_seqs=2)

    assert runner.info.batch_invariant
    assert outputs(speculative) == outputs(plain)
    assert logprobs(speculative) == logprobs(plain)
    assert max(len(chunk.token_ids) for answer in speculative for chunk in answer.chunks) > 1


def logprobs(answers: list[Answer]) -> list[list[TokenLogprobs]]:
    """The tokens of every request, choice by choice."""
    chunks = [sorted(answer.chunks, key=lambda chunk: chunk.index) for answer in answers]
    return [[one for chunk in of_request for one in chunk.logprobs] for of_request in chunks]


def test_drafts_that_are_right_come_with_the_token_that_is_due(runner: Runner) -> None:
    """Accepted drafts have the log probabilities of tokens sampled one by one."""
    prompt = [5, 9, 11]
    (answer,) = run(runner, [greedy(prompt, 6, logprobs=2)])
    token_ids = answer.token_ids[0]
    one = sequence(prompt=prompt, temperature=0.0, logprobs=2, max_tokens=9)
    one.block_table = [0, 1, 2]
    drafts = (*token_ids[:3], (token_ids[3] + 1) % 97, token_ids[4])

    (found,) = runner.execute([ScheduledSequence(one, 0, 3 + len(drafts), drafts)])
    runner.release(one)

    assert isinstance(found, Sampled)
    assert list(found.token_ids) == token_ids[:4]
    expected = [one for chunk in answer.chunks for one in chunk.logprobs]
    assert [one.logprob for one in found.logprobs] == pytest.approx([one.logprob for one in expected[:4]], abs=1e-4)
    assert one.token_ids == prompt


def test_results_are_for_those_who_sample_in_order(runner: Runner) -> None:
    chunk, first, second = sequence(prompt=[1, 2, 3]), sequence(prompt=[4]), sequence(prompt=[5, 6])
    for block, one in enumerate((chunk, first, second)):
        one.block_table = [block]

    results = runner.execute(
        [ScheduledSequence(first, 0, 1), ScheduledSequence(chunk, 0, 2), ScheduledSequence(second, 0, 2)]
    )

    assert len(results) == 2
    assert all(isinstance(result, Sampled) for result in results)
    assert (first.num_computed_tokens, first.token_ids) == (0, [4]), "the runner changes nothing"


def test_a_step_that_samples_nothing(runner: Runner) -> None:
    chunk = sequence(prompt=[1, 2, 3])
    chunk.block_table = [0]

    assert runner.execute([ScheduledSequence(chunk, 0, 2)]) == []
    assert runner.execute([]) == []


def test_nan_logits_fail_one_sequence_and_cache_no_block(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.llama())
    with torch.no_grad():
        model.model.embed_tokens.weight[13] = torch.nan
    broken = load(tiny.save(model, tmp_path), num_blocks=4)
    good, bad = sequence(prompt=[5, 9, 11], temperature=0.0), sequence(prompt=[5, 13, 11], temperature=0.0)
    good.block_table, bad.block_table = [0], [1]

    alone = broken.execute([ScheduledSequence(good, 0, 3)])
    together = broken.execute([ScheduledSequence(bad, 0, 3), ScheduledSequence(good, 0, 3)])
    good.block_table = [1]
    after = broken.execute([ScheduledSequence(good, 0, 3)])

    assert isinstance(together[0], FloatingPointError)
    assert together[1:] == alone == after


@pytest.mark.usefixtures("kernels")
def test_heads_of_an_odd_size_are_computed_by_plain_torch_in_bfloat16(tmp_path: Path) -> None:
    part = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.9}
    odd = tiny.save(tiny.random_model(tiny.phi3(hidden_size=28, rope_parameters=part)), tmp_path)
    requests = [greedy(prompt, 8) for prompt in PROMPTS]

    ours = load(odd, dtype="bfloat16")

    assert not ours.info.batch_invariant
    assert outputs(run(ours, requests)) == outputs(
        run(load(odd, dtype="bfloat16", attention_backend="reference"), requests)
    )
    assert load(odd, dtype="float32").info.batch_invariant
    for options in ({"attention_backend": "cpu", "dtype": "bfloat16"}, {"quantization": "int8", "dtype": "auto"}):
        with pytest.raises(ModelLoadError, match="head_dim must be a multiple of 2"):
            load(odd, **options)


def test_what_is_missing_is_logged_once(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "load_kernels", lambda: None)

    with capture_logs() as logs:
        load(folder)

    assert len([line for line in logs if line["log_level"] == "warning"]) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float16"}, "dtype float16 is not supported; supported: auto, float32, bfloat16"),
        ({"max_model_len": 129}, "max_model_len must be between 1 and 128, the context length of this model, not 129"),
        ({"max_model_len": 0}, "max_model_len must be between 1 and 128, .*, not 0"),
        (
            {"num_blocks": None, "kv_cache_bytes": 767},
            "KV cache memory of 767 bytes is less than one block of 768 bytes",
        ),
    ],
)
def test_invalid_sizes_are_refused(folder: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        load(folder, **changes)


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(ModelLoadError, match="/no/such/model does not exist"):
        load("/no/such/model")


def test_the_cache_takes_as_many_blocks_as_fit(folder: str) -> None:
    bytes_per_block = BLOCK_SIZE * 2 * 2 * 2 * 6 * 4  # keys and values, layers, heads, head size, float32

    assert load(folder, num_blocks=None, kv_cache_bytes=10 * bytes_per_block + 1).info.num_blocks == 10
    assert load(folder, num_blocks=None, kv_cache_bytes=10 * bytes_per_block, dtype="bfloat16").info.num_blocks == 20


@pytest.mark.parametrize("options", [{}, {"attention_backend": "reference"}, {"executor": "torch"}], ids=str)
def test_an_int8_kv_cache_holds_more_tokens(folder: str, options: dict[str, str]) -> None:
    bytes_per_block = BLOCK_SIZE * 2 * 2 * 2 * (6 + 4)  # keys and values, layers, heads, head size and float32 scale
    sizes: dict[str, Any] = {"num_blocks": None, "kv_cache_bytes": 10 * bytes_per_block}

    info = load(folder, dtype="bfloat16", kv_cache_dtype="int8", **sizes, **options).info

    assert (info.num_blocks, info.kv_cache_bytes) == (10, 10 * bytes_per_block)
    assert (info.dtype, info.cache_dtype) == ("bfloat16", "int8")


@pytest.mark.parametrize("options", [{}, {"attention_backend": "reference"}], ids=str)
def test_an_int8_kv_cache_changes_log_probabilities_slightly(folder: str, options: dict[str, str]) -> None:
    def logprobs(**changes: str) -> list[float]:
        (answer,) = run(load(folder, **options, **changes), [greedy(range(1, 30), 1, prompt_logprobs=0)])
        return [entry.logprob for entry in answer.prompt_logprobs]

    exact, found = logprobs(), logprobs(kv_cache_dtype="int8")

    assert len(exact) == 28
    assert found != exact
    assert found == pytest.approx(exact, abs=0.1)


def test_a_shorter_context(folder: str) -> None:
    assert load(folder, max_model_len=32).info.max_model_len == 32


@pytest.mark.parametrize(
    ("abilities", "expected"),
    [
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": False, "amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": False, "amx_bf16": False}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_the_type_that_this_processor_is_good_at(
    abilities: dict[str, bool], expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities)

    assert resolve_dtype("auto") == expected
    assert resolve_dtype("float32") == torch.float32
    assert resolve_dtype("bfloat16") == torch.bfloat16


def test_threads_are_set_when_told(folder: str) -> None:
    before = torch.get_num_threads()
    try:
        load(folder, num_threads=2)
        assert torch.get_num_threads() == 2
        load(folder, num_threads=None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_end_of_sequence_ends_it(runner: Runner) -> None:
    request = Request(
        "r", (5, 9), SamplingParams(temperature=0.0, max_tokens=5, logit_bias=((2, 100.0),)), frozenset([2])
    )

    (answer,) = run(runner, [request])

    assert answer.token_ids == {0: [2]}
    assert answer.finish_reasons == {0: "stop"}


def test_min_tokens_holds_the_end_back(runner: Runner) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=9, min_tokens=4, logit_bias=((2, 100.0),))

    (answer,) = run(runner, [Request("r", (5, 9), params, frozenset([2]))])

    assert len(answer.token_ids[0]) == 5
    assert answer.token_ids[0].index(2) == 4
