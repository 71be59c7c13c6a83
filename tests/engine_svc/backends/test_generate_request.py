from __future__ import annotations

import pytest

from engine_svc.backends.generate_request import read_request
from engine_svc.request import SamplingParams, Script
from engine_svc.runners.interface import RunnerInfo
from engine_svc.scheduling.capacity import Capacity
from tests.engine_svc.serving import EOS, prompt, script

INFO = RunnerInfo("m", "llama", "float32", "float32", 300, 100, 64, (EOS,), simulated=True)
ROOMY = Capacity(max_model_len=100, block_size=16, num_blocks=64)


def test_absent_fields_take_the_defaults_that_the_proto_promises() -> None:
    request = read_request(prompt(10, seed=3), INFO, ROOMY)
    assert request.sampling_params == SamplingParams(max_tokens=90, seed=3)
    assert (request.open_ended, request.script) == (True, None)


def test_every_field_arrives() -> None:
    request = read_request(
        prompt(
            [5, 6], name="id", eos=[9, 10], simulate=script([1, 2], [], repeat=3, delay_ms=250.0, finish="length"),
            temperature=0.5, top_p=0.25, top_k=7, min_p=0.125, frequency_penalty=1.5, presence_penalty=-1.5,
            repetition_penalty=1.25, max_tokens=8, min_tokens=2, stop_token_ids=[1, 2, 2], ignore_eos=True, n=3,
            logprobs=4, seed=2**64 - 1, logit_bias={3: -0.5},
        ),
        INFO, ROOMY,
    )  # fmt: skip
    assert request.sampling_params == SamplingParams(
        0.5, 0.25, 7, 0.125, 1.5, -1.5, 1.25, 8, 2, frozenset({1, 2}), True, 3, 4, 2**64 - 1, ((3, -0.5),)
    )
    assert request.script == Script(((1, 2), ()), 3, 0.25, "length")
    assert (request.request_id, request.prompt_token_ids) == ("id", (5, 6))
    assert request.eos_token_ids == {9, 10}
    assert request.open_ended is False


@pytest.mark.parametrize(("top_k", "expected"), [(-1, 0), (0, 0), (1, 1)])
def test_top_k_zero_and_minus_one_keep_all_tokens(top_k: int, expected: int) -> None:
    assert read_request(prompt(top_k=top_k), INFO, ROOMY).sampling_params.top_k == expected
