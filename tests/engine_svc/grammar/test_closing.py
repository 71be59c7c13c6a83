"""Objects are closed as a whole, and a value that is valid by the closed schema is valid by the original."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_svc.grammar.closing import closed
from tests.engine_svc.grammar.given import accepts, compiled, schema
from tests.engine_svc.grammar.test_random_schemas import SCHEMAS, VALUES

A: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}
B: dict[str, Any] = {"properties": {"b": {"type": "integer"}}, "required": ["b"]}
DEFINED: dict[str, Any] = {
    "$defs": {
        "A": A | {"required": ["a"]},
        "AB": {"allOf": [{"$ref": "#/$defs/A"}, B]},
        "ABC": {"description": "deeper", "$ref": "#/$defs/AB", "properties": {"c": {"type": "null"}}},
    }
}
PEOPLE: dict[str, Any] = {
    "components": {
        "schemas": {"P": {"properties": {"name": {"const": "x"}, "friend": {"$ref": "#/components/schemas/P"}}}}
    }
}

CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("alone", A, ["{}", '{"a":1}', "5"], ['{"b":1}', '{"a":1,"b":1}']),
    ("no members", {"type": "object", "properties": {}}, ["{}"], ['{"b":1}']),
    ("required only", A | {"required": ["z"]}, ['{"a":1,"z":"q"}', '{"z":[1]}'], ['{"z":1,"b":1}', '{"a":1}']),
    ("opened", A | {"additionalProperties": True}, ['{"a":1,"b":[]}'], ['{"a":"x"}']),
    ("opened by a schema", A | {"additionalProperties": {"type": "null"}}, ['{"a":1,"x":null}'], ['{"x":1}']),
    ("closed already", A | {"additionalProperties": False}, ["{}", '{"a":1}'], ['{"b":1}']),
    ("any object", {"type": "object"}, ["{}", '{"b":1}'], ["5"]),
    ("no properties", {"required": ["q"]}, ['{"q":1,"b":1}'], ["{}"]),
    ("patterns", A | {"patternProperties": {"^x": {"type": "null"}}}, ['{"a":1,"xx":null}'], ['{"b":null}', '{"x":1}']),
    (
        "required by a pattern",
        A | {"patternProperties": {"^x": {"type": "null"}}, "required": ["xx"]},
        ['{"a":1,"xx":null}'],
        ['{"xx":1}', '{"a":1}'],
    ),
    ("inside", {"properties": {"n": A, "o": {"type": "object"}}}, ['{"n":{"a":1},"o":{"q":1}}'], ['{"n":{"b":1}}']),
    ("in a list", {"items": A}, ['[{"a":1},{}]'], ['[{"b":1}]']),
    ("in other members", {"additionalProperties": A}, ['{"x":{"a":1}}'], ['{"x":{"b":1}}']),
    ("all of", {"allOf": [A, B]}, ['{"a":1,"b":2}', '{"b":2}'], ['{"b":1,"c":1}', '{"a":1}']),
    ("all of, and own", {"allOf": [A], **B}, ['{"a":1,"b":2}'], ['{"b":1,"c":1}']),
    ("all of, opened", {"allOf": [A, B | {"additionalProperties": True}]}, ['{"a":1,"b":2,"c":1}'], ["{}"]),
    ("all of, patterns", {"allOf": [A, {"patternProperties": {"^x": {}}}]}, ['{"a":1,"x":2}'], ['{"b":1}']),
    ("any of", {"type": "object", "anyOf": [A, B]}, ['{"a":1}', '{"b":1}'], ['{"a":1,"b":1}']),
    ("any of, and own", {"properties": {"k": {"const": 1}}, "anyOf": [A, B]}, ['{"k":1,"b":1}'], ['{"b":1,"c":1}']),
    (
        "one must be there",
        {"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
        ["{}", '{"a":1,"c":1}'],
    ),
    ("a reference", DEFINED | {"$ref": "#/$defs/A"}, ['{"a":1}'], ['{"a":1,"b":1}']),
    ("a reference, extended", DEFINED | {"$ref": "#/$defs/AB"}, ['{"a":1,"b":2}'], ['{"a":1,"b":1,"c":1}', '{"b":1}']),
    ("extended again", DEFINED | {"$ref": "#/$defs/ABC"}, ['{"a":1,"b":2,"c":null}'], ['{"a":1,"b":1,"d":1}']),
    (
        "closed here and extended there",
        DEFINED | {"prefixItems": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/AB"}]},
        ['[{"a":1},{"a":1,"b":1}]'],
        ['[{"a":1,"b":1}]', '[{"a":1},{"a":1,"b":1,"c":1}]'],
    ),
    (
        "itself",
        {"properties": {"v": {"type": "null"}, "next": {"$ref": "#"}}},
        ['{"v":null,"next":{"next":{}}}'],
        ['{"next":{"x":1}}'],
    ),
    (
        "elsewhere",
        PEOPLE | {"$ref": "#/components/schemas/P"},
        ['{"name":"x","friend":{"friend":{}}}'],
        ['{"friend":{"y":1}}'],
    ),
    (
        "elsewhere, extended",
        PEOPLE | {"allOf": [{"$ref": "#/components/schemas/P"}, A]},
        ['{"name":"x","friend":{"name":"x"},"a":1}'],
        ['{"friend":{"a":1}}', '{"b":1}'],
    ),
    ("at least", A | {"minProperties": 2, "required": ["a"]}, ['{"a":1,"b":1}'], ['{"a":1}']),
    ("a constant", A | {"const": {"b": 1}}, ['{"b":1}'], ['{"a":1}', "{}"]),
]


@pytest.mark.parametrize(("value", "good", "bad"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_objects_are_closed_as_a_whole(value: dict[str, Any], good: list[str], bad: list[str]) -> None:
    before = json.dumps(value)
    grammar = compiled(schema(value))
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []
    assert json.dumps(value) == before


def test_schemas_inside_constants_and_annotations_do_not_change() -> None:
    value = {"const": A, "enum": [A], "default": A, "examples": [A]}
    assert closed(value) == value


def test_our_key_may_occur_in_the_schema() -> None:
    value = DEFINED | {"$ref": "#/$defs/AB", "pellucid-open": {"0": {"type": "null"}}}
    assert accepts(schema(value), '{"a":1,"b":1}')


def test_many_references_to_one_large_schema_copy_it_once() -> None:
    large: dict[str, Any] = {"properties": {f"p{number}": {} for number in range(500)}}
    value = {"items": {"anyOf": [{"allOf": [{"$ref": "#/$defs/large"}, A]}] * 100}, "$defs": {"large": large}}
    assert len(closed(value)["pellucid-open"]) == 1


@settings(max_examples=200)
@given(constraint=SCHEMAS, values=st.lists(VALUES, min_size=5, max_size=15))
def test_a_closed_schema_accepts_nothing_more(constraint: dict[str, Any], values: list[Any]) -> None:
    open_, narrow = jsonschema.Draft202012Validator(constraint), jsonschema.Draft202012Validator(closed(constraint))
    for value in values:
        assert open_.is_valid(value) or not narrow.is_valid(value)
