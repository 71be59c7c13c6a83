"""A sampling field is defined in six places: the gateway's schema, its request and its engine client, the engine's
request reader, the engine's request, and the library's parameters. Fields and limits must agree in all of them.
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
from gateway.api.chat.read import read_chat
from gateway.api.chat.schema import ChatCompletion
from gateway.generation.request import Sampling
from gateway.replicas.clients.engine import _sampling_params
from protos.v1 import engine_pb2
from svclib.errors import InvalidRequest

EXAMPLES: dict[str, tuple[Any, Any]] = {
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
"""For each field of the wire a value other than its default, and its value in the engine's request."""

CONSTRAINTS = {field.name for field in engine_pb2.SamplingParams.DESCRIPTOR.oneofs_by_name["constraint"].fields}
NOT_OVER_HTTP = CONSTRAINTS | {"prompt_logprobs"}
"""Fields that the HTTP API does not have as sampling fields."""
OUTSIDE_SAMPLING = {"n"}
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
"""Minimum and maximum; None where the context length is the limit."""

MAX_STOP_TOKENS, MAX_BIASES, MAX_BIAS = 128, 1024, 100.0
VOCAB = 100_000
INFO = RunnerInfo("m", "llama", "float32", "float32", VOCAB, 2**31, 2**31, (0,))
LONG = Capacity(max_model_len=2**31, block_size=1, num_blocks=2**31)

Interface: TypeAlias = Callable[[dict[str, Any]], SamplingParams]


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


INTERFACES: list[Interface] = [over_grpc, over_http, in_the_library]


def interfaces_with(name: str) -> list[Interface]:
    return [interface for interface in INTERFACES if interface is not over_http or name not in NOT_OVER_HTTP]


def is_refused(interface: Interface, asked: dict[str, Any]) -> bool:
    """Refused by validation, or because the wire type cannot hold the value."""
    try:
        interface(asked)
    except (InvalidRequest, ValueError):
        return True
    return False


def test_every_place_has_every_field() -> None:
    wire = {field.name for field in engine_pb2.SamplingParams.DESCRIPTOR.fields}
    http_fields = wire - NOT_OVER_HTTP

    assert set(EXAMPLES) == wire, "every field needs a row in this file"
    assert {field.name for field in fields(SamplingParams)} == wire - CONSTRAINTS | {"constraint"}
    assert {field.name for field in fields(LibraryParams)} - {"_"} == wire | {"stop"}
    assert {field.name for field in fields(Sampling)} == http_fields - OUTSIDE_SAMPLING
    assert http_fields | {"top_logprobs"} <= ChatCompletion.model_fields.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_value_arrives_over_every_interface(name: str) -> None:
    value, expected = EXAMPLES[name]
    field = "constraint" if name in CONSTRAINTS else name
    for interface in interfaces_with(name):
        plain, found = interface({"seed": 0}), interface({"seed": 0, name: value})
        assert getattr(found, field) == expected, interface
        assert getattr(plain, field) != expected, interface
        assert found == replace(plain, **{field: expected}), f"{interface}: no other field changes"


def test_defaults_are_the_same_over_every_interface() -> None:
    assert len({interface({"seed": 0, "max_tokens": 5}) for interface in INTERFACES}) == 1


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_the_same_over_every_interface(name: str) -> None:
    least, greatest = LIMITS[name]
    step = 1 if isinstance(least, int) else 0.001
    for interface in interfaces_with(name):
        assert not is_refused(interface, {name: least}), interface
        assert is_refused(interface, {name: least - step}), interface
        if greatest is not None:
            assert not is_refused(interface, {name: greatest}), interface
            assert is_refused(interface, {name: greatest + step}), interface


def test_min_tokens_is_never_more_than_max_tokens() -> None:
    for interface in INTERFACES:
        assert not is_refused(interface, {"min_tokens": 5, "max_tokens": 5}), interface
        assert is_refused(interface, {"min_tokens": 6, "max_tokens": 5}), interface


def test_list_lengths_are_the_same_over_every_interface() -> None:
    for interface in INTERFACES:
        assert not is_refused(interface, {"stop_token_ids": list(range(MAX_STOP_TOKENS))}), interface
        assert is_refused(interface, {"stop_token_ids": list(range(MAX_STOP_TOKENS + 1))}), interface
        assert not is_refused(interface, {"logit_bias": dict.fromkeys(range(MAX_BIASES), MAX_BIAS)}), interface
        assert is_refused(interface, {"logit_bias": dict.fromkeys(range(MAX_BIASES + 1), MAX_BIAS)}), interface


@pytest.mark.parametrize("bias", [-MAX_BIAS, MAX_BIAS])
def test_bias_limits_are_the_same_over_every_interface(bias: float) -> None:
    for interface in INTERFACES:
        assert not is_refused(interface, {"logit_bias": {1: bias}}), interface
        assert is_refused(interface, {"logit_bias": {1: bias * 1.001}}), interface


def test_every_field_with_a_range_has_its_limits_here() -> None:
    numbers = {name for name, (value, _) in EXAMPLES.items() if type(value) in (int, float)}
    assert numbers - {"seed"} == LIMITS.keys(), "every seed is valid"
