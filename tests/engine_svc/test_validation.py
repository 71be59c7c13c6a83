from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine_svc.request import SamplingParams, Script
from engine_svc.validation import (
    MAX_CHOICES,
    MAX_END_TOKENS,
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_SCRIPT_DELAY,
    MAX_SCRIPT_STEPS,
    check_end_tokens,
    check_prompt,
    check_sampling,
    check_script,
)
from protos.v1.engine_pb2 import SamplingParams as SamplingParamsMessage
from svclib.errors import InvalidRequest

VOCAB = 5000
NAN, INF = float("nan"), float("inf")
SINGLE_0_01 = SamplingParamsMessage(repetition_penalty=0.01).repetition_penalty
"""In single precision, as it arrives over gRPC."""


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.0}, {"temperature": 2.0},
        {"top_p": 0.0}, {"top_p": 1.0},
        {"top_k": 0}, {"top_k": 1}, {"top_k": 10**6},
        {"min_p": 0.0}, {"min_p": 1.0},
        {"frequency_penalty": -2.0}, {"frequency_penalty": 2.0},
        {"presence_penalty": -2.0}, {"presence_penalty": 2.0},
        {"repetition_penalty": 0.01}, {"repetition_penalty": 10.0}, {"repetition_penalty": SINGLE_0_01},
        {"max_tokens": 1},
        {"min_tokens": 16, "max_tokens": 16},
        {"n": 1}, {"n": MAX_CHOICES},
        {"logprobs": None}, {"logprobs": 0}, {"logprobs": MAX_LOGPROBS},
        {"prompt_logprobs": 0}, {"prompt_logprobs": MAX_LOGPROBS},
        {"seed": 0}, {"seed": 2**64 - 1},
        {"stop_token_ids": frozenset(range(MAX_END_TOKENS))},
        {"stop_token_ids": frozenset([0, VOCAB - 1])},
        {"logit_bias": ((0, -100.0), (VOCAB - 1, 100.0))},
        {"logit_bias": tuple((token_id, 1.0) for token_id in range(MAX_LOGIT_BIASES))},
    ],
    ids=str,
)  # fmt: skip
def test_good_values_at_the_limits(params: dict[str, Any]) -> None:
    check_sampling(replace(SamplingParams(), **params), VOCAB)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        *(("temperature", value) for value in (-0.1, 2.1, NAN, INF)),
        *(("top_p", value) for value in (-1.0, 1.01, NAN, -INF)),
        *(("top_k", value) for value in (-2, 2**31)),
        *(("min_p", value) for value in (-0.1, 1.1, NAN)),
        *(("frequency_penalty", value) for value in (9.0, -2.1, NAN)),
        *(("presence_penalty", value) for value in (-2.1, 2.1, NAN)),
        *(("repetition_penalty", value) for value in (0.0, -1.0, 10.1, NAN, INF)),
        ("max_tokens", 0),
        ("min_tokens", 17),
        *(("n", value) for value in (0, MAX_CHOICES + 1, 10**9)),
        *(("logprobs", value) for value in (MAX_LOGPROBS + 1, 10**9)),
        *(("prompt_logprobs", value) for value in (MAX_LOGPROBS + 1, 10**9)),
        *(("stop_token_ids", value) for value in (frozenset([VOCAB]), frozenset(range(MAX_END_TOKENS + 1)))),
        ("logit_bias", ((99999999, 5.0),)),
        *(("logit_bias", ((5, value),)) for value in (101.0, -100.5, NAN, INF)),
        ("logit_bias", tuple((token_id, 1.0) for token_id in range(MAX_LOGIT_BIASES + 1))),
    ],
    ids=lambda value: str(value)[:40],
)
def test_invalid_values_are_refused_by_name(param: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_sampling(replace(SamplingParams(), **{param: value}), VOCAB)
    assert caught.value.param == param
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("token_ids", [(), (1, VOCAB), (1, 2, 99999999)])
def test_bad_prompts(token_ids: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_prompt(token_ids, VOCAB)
    assert caught.value.param == "prompt"


def test_good_prompts() -> None:
    check_prompt((0,), VOCAB)
    check_prompt((VOCAB - 1,) * 1000, VOCAB)


def test_end_tokens() -> None:
    check_end_tokens(frozenset(), VOCAB, param="eos_token_ids")
    with pytest.raises(InvalidRequest) as caught:
        check_end_tokens(frozenset([VOCAB]), VOCAB, param="eos_token_ids")
    assert caught.value.param == "eos_token_ids"


@pytest.mark.parametrize(
    "script",
    [
        Script(()),
        Script(((), (VOCAB - 1,)), repeat=0),
        Script(((1,),), repeat=MAX_SCRIPT_STEPS),
        Script((tuple([1] * 10_000),), delay=MAX_SCRIPT_DELAY),
    ],
    ids=["empty", "repeat 0", "many", "long and slow"],
)
def test_good_scripts(script: Script) -> None:
    check_script(script, VOCAB)


@pytest.mark.parametrize(
    ("script", "param"),
    [
        (Script(((1,),), repeat=MAX_SCRIPT_STEPS + 1), "simulate"),
        (Script(((),), repeat=2**32 - 1), "simulate"),
        (Script(((1,), (VOCAB,))), "simulate.steps"),
        *((Script(((1,),), delay=delay), "simulate.delay_ms") for delay in (-0.001, NAN, INF, MAX_SCRIPT_DELAY + 1)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_scripts(script: Script, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_script(script, VOCAB)
    assert caught.value.param == param
