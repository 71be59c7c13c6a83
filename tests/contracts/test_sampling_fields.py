"""A sampling field is written in six places: the gateway's schema, its request and its engine client, the reader of the
engine's service, the engine's request, and the library's parameters. No place may forget one, or limit it differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeAlias

import pytest

from engine_svc import SamplingParams as LibraryParams
from engine_svc.backends.generate_request import read_request
from engine_svc.constraint import Constraint
from engine_svc.request import SamplingParams
from engine_svc.runners.interface import RunnerInfo
from engine_svc.scheduling.capacity import Capacity
from gateway.api.chat.schema import ChatCompletion, read_chat
from gateway.generation.request import Sampling
from gateway.replicas.clients.engine import _sampling_params
from protos.v1 import engine_pb2
from svclib.errors import InvalidRequest

ARRIVES: dict[str, tuple[Any, Any]] = {
    "temperature": (0.5, 0.5),
    "top_p": (0.25, 0.25),
    "top_k": (7, 7),
    "min_p": (0.125, 0.125),
    "frequency_penalty": (1.5, 1.5),
    "presence_penalty": (-1.5, -1.5),
    "repetition_penalty": (1.25, 1.25),
    "max_tokens": (8, 8),
    "min_tokens": (2, 2),
    "stop_token_ids": ([3, 4], frozenset({3, 4})),
    "ignore_eos": (True, True),
    "n": (3, 3),
    "logprobs": (4, 4),
    "prompt_logprobs": (5, 5),
    "seed": (6, 6),
    "logit_bias": ({7: -0.5}, ((7, -0.5),)),
    "json_object": (True, Constraint("json_object")),
    "json_schema": ("{}", Constraint("json_schema", "{}")),
    "regex": ("a+", Constraint("regex", "a+")),
    "choice": (["a", "b"], Constraint("choice", choices=("a", "b"))),
    "grammar": ('start: "a"', Constraint("grammar", 'start: "a"')),
}
"""For each field of the wire a value that is not its default, and what the engine makes of it."""

CONSTRAINTS = {field.name for field in engine_pb2.SamplingParams.DESCRIPTOR.oneofs_by_name["constraint"].fields}
NOT_OVER_HTTP = CONSTRAINTS | {"prompt_logprobs"}
"""What a client of the gateway does not ask for by a sampling field."""
BESIDE_SAMPLING = {"n"}
"""In the gateway's request itself."""

LIMITS: dict[str, tuple[float, float | None]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (-1, 2**31 - 1),
    "min_p": (0.0, 1.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.01, 10.0),
    "max_tokens": (1, None),
    "min_tokens": (0, None),
    "n": (1, 128),
    "logprobs": (0, 20),
    "prompt_logprobs": (0, 20),
}
"""Least and greatest value; None where the context is the limit, whose length no table knows."""

MAX_STOP_TOKENS, MAX_BIASES, MAX_BIAS = 128, 1024, 100.0
VOCAB = 100_000
INFO = RunnerInfo("m", "llama", "float32", "float32", VOCAB, 2**31, 2**31, (0,))
LONG = Capacity(max_model_len=2**31, block_size=1, num_blocks=2**31)

Way: TypeAlias = Callable[[dict[str, Any]], SamplingParams]


def over_grpc(asked: dict[str, Any]) -> SamplingParams:
    given = dict(asked)
    if "choice" in given:
        given["choice"] = engine_pb2.ChoiceConstraint(choices=given["choice"])
    return read(engine_pb2.SamplingParams(**given))


def over_http(asked: dict[str, Any]) -> SamplingParams:
    given = dict(asked)
    if "logprobs" in given:
        given["top_logprobs"], given["logprobs"] = given["logprobs"], True
    if "logit_bias" in given:
        given["logit_bias"] = {str(token_id): bias for token_id, bias in given["logit_bias"].items()}
    request = read_chat({"model": "m", "messages": [{"role": "user", "content": "hi"}], **given}, reject_unknown=True)
    return read(_sampling_params(request.generation.sampling, request.generation.n))


def in_the_library(asked: dict[str, Any]) -> SamplingParams:
    return LibraryParams(**{"max_tokens": None, **asked}).resolve(LONG.max_tokens(1, None))


def read(params: engine_pb2.SamplingParams) -> SamplingParams:
    message = engine_pb2.GenerateRequest(request_id="r", input_ids=[1], sampling_params=params)
    return read_request(engine_pb2.GenerateRequest.FromString(message.SerializeToString()), INFO, LONG).sampling_params


WAYS: list[Way] = [over_grpc, over_http, in_the_library]


def ways(name: str) -> list[Way]:
    return [way for way in WAYS if way is not over_http or name not in NOT_OVER_HTTP]


def is_refused(way: Way, asked: dict[str, Any]) -> bool:
    """Also by the type of the wire, which has no room for some values."""
    try:
        way(asked)
    except (InvalidRequest, ValueError):
        return True
    return False


def test_every_place_has_every_field() -> None:
    wire = {field.name for field in engine_pb2.SamplingParams.DESCRIPTOR.fields}
    over_http_too = wire - NOT_OVER_HTTP

    assert set(ARRIVES) == wire, "every field needs a row in this file"
    assert {field.name for field in fields(SamplingParams)} == wire - CONSTRAINTS | {"constraint"}
    assert {field.name for field in fields(LibraryParams)} - {"_"} == wire | {"stop"}
    assert {field.name for field in fields(Sampling)} == over_http_too - BESIDE_SAMPLING
    assert over_http_too | {"top_logprobs"} <= ChatCompletion.model_fields.keys()


@pytest.mark.parametrize("name", ARRIVES)
def test_a_value_arrives_whichever_way_it_takes(name: str) -> None:
    value, expected = ARRIVES[name]
    field = "constraint" if name in CONSTRAINTS else name
    for way in ways(name):
        plain, found = way({"seed": 0}), way({"seed": 0, name: value})
        assert getattr(found, field) == expected, way
        assert getattr(plain, field) != expected, way
        assert found == replace(plain, **{field: expected}), f"{way}: no other field changes"


def test_defaults_are_the_same_whichever_way() -> None:
    assert len({way({"seed": 0, "max_tokens": 5}) for way in WAYS}) == 1


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_the_same_whichever_way(name: str) -> None:
    least, greatest = LIMITS[name]
    step = 1 if isinstance(least, int) else 0.001
    for way in ways(name):
        assert not is_refused(way, {name: least}), way
        assert is_refused(way, {name: least - step}), way
        if greatest is not None:
            assert not is_refused(way, {name: greatest}), way
            assert is_refused(way, {name: greatest + step}), way


def test_min_tokens_is_never_more_than_max_tokens() -> None:
    for way in WAYS:
        assert not is_refused(way, {"min_tokens": 5, "max_tokens": 5}), way
        assert is_refused(way, {"min_tokens": 6, "max_tokens": 5}), way


def test_lists_are_as_long_whichever_way() -> None:
    for way in WAYS:
        assert not is_refused(way, {"stop_token_ids": list(range(MAX_STOP_TOKENS))}), way
        assert is_refused(way, {"stop_token_ids": list(range(MAX_STOP_TOKENS + 1))}), way
        assert not is_refused(way, {"logit_bias": dict.fromkeys(range(MAX_BIASES), MAX_BIAS)}), way
        assert is_refused(way, {"logit_bias": dict.fromkeys(range(MAX_BIASES + 1), MAX_BIAS)}), way


@pytest.mark.parametrize("bias", [-MAX_BIAS, MAX_BIAS])
def test_a_bias_is_as_large_whichever_way(bias: float) -> None:
    for way in WAYS:
        assert not is_refused(way, {"logit_bias": {1: bias}}), way
        assert is_refused(way, {"logit_bias": {1: bias * 1.001}}), way


def test_every_field_with_a_range_has_its_limits_here() -> None:
    numbers = {name for name, (value, _) in ARRIVES.items() if type(value) in (int, float)}
    assert numbers - {"seed"} == LIMITS.keys(), "every seed is a seed"
