"""Numbers are bounded, wherever in an output they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.constraint import Constraint
from engine_svc.grammar.numbers import may_have_long_numbers
from engine_svc.grammar.source import source_of
from tests.engine_svc.grammar.given import accepts, compiled, schema

NUMBER: dict[str, Any] = {"type": "number"}
CALLS = 'start: "<call>" %json {"properties": {"x": {"type": "number"}}, "required": ["x"]} "</call>" | /[a-z 0-9."]*/'


@pytest.mark.parametrize("number", ["1" * 17, "-" + "9" * 17, "0." + "1" * 17, "123." + "0" * 14, "1e308", "-1.5E-324"])
def test_short_numbers_are_allowed(number: str) -> None:
    assert accepts(schema(NUMBER), number)
    assert accepts(Constraint("json_object"), f'{{"a":[{number},{number}]}}')
    assert accepts(Constraint("grammar", CALLS), f'<call>{{"x": {number}}}</call>')


@pytest.mark.parametrize(
    "number", ["1" * 18, "-" + "9" * 18, "0." + "1" * 18, "123." + "0" * 15, "1e1234", "1" * 17 + ".0"]
)
def test_long_numbers_are_forbidden(number: str) -> None:
    assert not accepts(schema(NUMBER), number)
    assert not accepts(Constraint("json_object"), f'{{"a":[{number}]}}')
    assert not accepts(Constraint("grammar", CALLS), f'<call>{{"x": {number}}}</call>')


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_every_double_can_be_written(number: float) -> None:
    assert accepts(compiled(schema(NUMBER)), json.dumps(number))


def test_decimals_between_bounds_end() -> None:
    """From a bug report: between these bounds a model writes digits until it is cut off."""
    between = {"type": "number", "minimum": 0.5, "maximum": 0.75}
    assert accepts(schema(between), "0.5" + "0" * 16)
    assert not accepts(schema(between), "0.5" + "0" * 17)


def test_strings_and_text_around_json_may_have_long_numbers() -> None:
    assert accepts(schema({"items": {"type": ["string", "number"]}}), f'["{"7" * 40}\\"8",1]')
    assert accepts(Constraint("json_object"), f'{{"{"1" * 30}":"{"2" * 30}"}}')
    assert accepts(Constraint("grammar", CALLS), "pi is 3." + "1415926535" * 5)
    assert accepts(Constraint("regex", "[0-9]{40}"), "3" * 40)


def test_a_constant_may_be_a_long_number() -> None:
    value = 2**60
    assert accepts(schema({"const": value}), str(value))
    assert accepts(schema({"properties": {"a": {"enum": [value]}, "b": NUMBER}}), f'{{"a":{value},"b":1}}')


@pytest.mark.parametrize(
    "value",
    [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 9}, {"enum": [1]}, {"anyOf": [{"type": "null"}]}],
)
def test_a_schema_without_long_numbers_has_no_second_grammar(value: dict[str, Any]) -> None:
    assert not may_have_long_numbers(value)
    assert source_of(schema(value)).numbers == ""


@pytest.mark.parametrize(
    "value",
    [
        {},
        NUMBER,
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "integer", "minimum": 0},
        {"type": ["integer", "null"]},
        {"type": "array"},
        {"type": "object"},
        {"type": "object", "properties": {"a": True}, "additionalProperties": False},
        {"type": "array", "items": NUMBER},
        {"anyOf": [{"type": "null"}, {"$ref": "#/x"}], "x": NUMBER},
    ],
)
def test_schemas_that_may_have_long_numbers(value: dict[str, Any]) -> None:
    assert may_have_long_numbers(value)
