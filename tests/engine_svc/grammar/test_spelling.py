from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.grammar.spelling import embedded, other_names

LETTERS = st.text(alphabet=r"ab]\^-[&~\"é" + "\n", max_size=4)
OPEN: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}


@given(names=st.lists(LETTERS, max_size=6), candidates=st.lists(LETTERS, max_size=10))
def test_all_names_but_some(names: list[str], candidates: list[str]) -> None:
    pattern = re.compile(other_names(names).removesuffix("$"))
    for text in [*names, *candidates]:
        assert (pattern.fullmatch(text) is None) == (text in names)


def options(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(embedded(schema))["x-guidance"]
    return found


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [OPEN, {"required": ["b"]}]},
        {"$ref": "#/$defs/a", "$defs": {"a": OPEN}, "required": ["b"]},
        {"anyOf": [OPEN, {"type": "null"}], "type": ["object", "null"]},
        {"patternProperties": {"^a": {"type": "null"}}},
        {"properties": {f"p{n}": {} for n in range(201)}},
        {"properties": {"x" * 81: {}}},
        OPEN | {"additionalProperties": {"$ref": "#/additionalProperties/$defs/b", "$defs": {"b": {}}}},
        OPEN | {"additionalProperties": {"$ref": "#/%61dditionalProperties/$defs/b", "$defs": {"b": {}}}},
        {"required": ["a"], "additionalProperties": {"type": "null"}},
        {"$ref": "#/elsewhere", "elsewhere": OPEN},
    ],
)
def test_no_unicode_escapes_where_names_could_be_mistaken(schema: dict[str, Any]) -> None:
    assert "u" not in options(schema)["json_allowed_escapes"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        OPEN,
        OPEN | {"additionalProperties": False},
        {"additionalProperties": {"type": "null"}},
        {"anyOf": [OPEN, {"type": "null"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": OPEN}, "description": "an annotation, which is not merged"},
        {"patternProperties": {"^a": {}}, "additionalProperties": False},
        {"allOf": [{"type": "string"}, {"maxLength": 4}]},
        {"required": ["a"]},
        {"properties": {"x" * 80: {}}},
        OPEN | {"required": ["a"], "additionalProperties": {"type": "null"}},
    ],
)
def test_unicode_escapes_elsewhere(schema: dict[str, Any]) -> None:
    assert "json_allowed_escapes" not in options(schema)


def test_schemas_inside_constants_and_annotations_do_not_change() -> None:
    schema = {"const": {"properties": {"a": 1}}, "default": OPEN, "enum": [OPEN]}
    assert {key: json.loads(embedded(schema))[key] for key in schema} == schema


def test_the_schema_itself_is_not_changed() -> None:
    schema = {"type": "object", "properties": {"a": dict(OPEN)}}
    before = json.dumps(schema)
    assert "patternProperties" in embedded(schema)
    assert json.dumps(schema) == before


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"]])
def test_twice_as_deep_is_twice_as_long(names: list[str]) -> None:
    def length(depth: int) -> int:
        inner: dict[str, Any] = {"type": "null"}
        for _ in range(depth):
            inner = {"properties": {"c": {}}, "required": names, "additionalProperties": inner}
        return len(embedded(inner))

    assert length(10) - length(5) == length(15) - length(10) < length(10)
