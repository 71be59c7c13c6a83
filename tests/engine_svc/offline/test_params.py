from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine_svc import SamplingParams
from engine_svc import request as engine
from engine_svc.constraint import Constraint

NAN = float("nan")


def test_defaults() -> None:
    params = SamplingParams()
    assert params.max_tokens == 64
    resolved = params.resolve(1000)
    assert resolved == engine.SamplingParams(max_tokens=64, seed=resolved.seed)


def test_everything_reaches_the_engine() -> None:
    params = SamplingParams(
        0.5, 9, True, top_p=0.9, top_k=5, min_p=0.1, frequency_penalty=0.2, presence_penalty=0.3,
        repetition_penalty=1.1, min_tokens=2, stop_token_ids=[3, 4], n=2, logprobs=0, prompt_logprobs=1, seed=0,
        logit_bias={7: -1},
    )  # fmt: skip
    assert params.resolve(1000) == engine.SamplingParams(
        temperature=0.5, max_tokens=9, ignore_eos=True, top_p=0.9, top_k=5, min_p=0.1, frequency_penalty=0.2,
        presence_penalty=0.3, repetition_penalty=1.1, min_tokens=2, stop_token_ids=frozenset({3, 4}), n=2, logprobs=0,
        prompt_logprobs=1, seed=0, logit_bias=((7, -1.0),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "constraint"),
    [
        ({"json_object": True}, Constraint("json_object")),
        ({"json_schema": {"type": "object"}}, Constraint("json_schema", '{"type": "object"}')),
        ({"json_schema": "{}"}, Constraint("json_schema", "{}")),
        ({"regex": "a+"}, Constraint("regex", "a+")),
        ({"choice": ["a", "b"]}, Constraint("choice", choices=("a", "b"))),
        ({"grammar": 'start: "a"'}, Constraint("grammar", 'start: "a"')),
        ({}, None),
        ({"json_object": False, "regex": None}, None),
    ],
)
def test_a_constraint(given: dict[str, Any], constraint: Constraint | None) -> None:
    assert SamplingParams(**given).resolve(1).constraint == constraint


def test_one_constraint_at_most() -> None:
    with pytest.raises(ValueError, match="json_object and regex"):
        SamplingParams(json_object=True, regex="a")


def test_max_tokens_none_is_what_fits() -> None:
    assert SamplingParams(max_tokens=None).resolve(123).max_tokens == 123


def test_top_k_of_minus_one_keeps_all() -> None:
    assert SamplingParams(top_k=-1).resolve(1).top_k == 0


def test_without_a_seed_each_use_draws_one() -> None:
    params = SamplingParams()
    assert len({params.resolve(1).seed for _ in range(8)}) == 8


def test_numbers_of_numpy_are_numbers() -> None:
    resolved = SamplingParams(temperature=np.float32(0.5), max_tokens=np.int64(3)).resolve(1)  # type: ignore[arg-type]
    assert (resolved.temperature, resolved.max_tokens) == (0.5, 3)
    assert type(resolved.max_tokens) is int


@pytest.mark.parametrize(("stop", "strings"), [(None, ()), ("x", ("x",)), (["a", "b"], ("a", "b")), ([], ())])
def test_stop_strings(stop: Any, strings: tuple[str, ...]) -> None:
    assert SamplingParams(stop=stop).stop_strings == strings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1), ("temperature", 2.1), ("temperature", NAN), ("temperature", "1"), ("temperature", None),
        ("temperature", True), ("top_p", 1.1), ("top_p", -0.1), ("top_k", -2), ("top_k", 2.5), ("min_p", 1.1),
        ("frequency_penalty", 2.1), ("presence_penalty", -2.1), ("repetition_penalty", 0.0), ("max_tokens", 0),
        ("max_tokens", -1), ("max_tokens", 1.5), ("max_tokens", "5"), ("min_tokens", -1), ("min_tokens", 65),
        ("n", 0), ("n", 129), ("logprobs", -1), ("logprobs", 21), ("prompt_logprobs", 21), ("seed", -1),
        ("seed", 2**64), ("seed", 1.0),
        ("stop", ""), ("stop", ["a", ""]), ("stop", [5]), ("stop_token_ids", [-1]), ("stop_token_ids", ["a"]),
        ("stop_token_ids", range(129)), ("logit_bias", {1: 101}), ("logit_bias", {-1: 1}), ("logit_bias", {1: "a"}),
        ("json_object", "yes"), ("json_schema", []), ("regex", 5), ("choice", "ab"), ("choice", [5]), ("grammar", b""),
    ],
)  # fmt: skip
def test_a_bad_value_is_named_at_once(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})


def test_an_unknown_name_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="top_q"):
        SamplingParams(top_q=0.5)  # type: ignore[call-arg]


@pytest.mark.parametrize(("field", "value"), [("seed", 2**64 - 1), ("temperature", 2), ("logprobs", 20), ("n", 128)])
def test_values_at_the_limit_are_accepted(field: str, value: Any) -> None:
    assert getattr(SamplingParams(**{field: value}).resolve(1), field) == value
