from __future__ import annotations

from typing import Any

import pytest

from engine_svc.grammar.references import check_references

ITSELF: dict[str, Any] = {"$ref": "#"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"next": ITSELF}},
        {"type": "object", "properties": {"next": {"anyOf": [ITSELF, {"type": "null"}]}}, "required": ["next"]},
        {"type": "array", "items": ITSELF},
        {"type": "array", "prefixItems": [{"type": "null"}], "items": ITSELF, "minItems": 1},
        {"type": ["array", "null"], "items": ITSELF, "minItems": 1},
        {"properties": {"a": ITSELF}, "required": ["a"]},
        {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "null"}}},
        {"$ref": "#/anyOf/0", "anyOf": [{"type": "null"}]},
        {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": {"const": 1}, "b": {"const": 2}}},
        {"properties": {"$ref": {"type": "string"}, "id": {"type": "string"}, "a": ITSELF}},
        {"const": {"$ref": "http://example.invalid"}},
    ],
)
def test_schemas_with_a_finite_value(schema: dict[str, Any]) -> None:
    check_references(schema)


@pytest.mark.parametrize(
    "schema",
    [
        ITSELF,
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"anyOf": [ITSELF, ITSELF]},
        {"allOf": [{"type": "object"}, ITSELF]},
        {"type": "object", "properties": {"a": ITSELF}, "required": ["a"]},
        {"type": "object", "additionalProperties": ITSELF, "required": ["a"]},
        {"type": "array", "items": ITSELF, "minItems": 1},
        {"type": "array", "prefixItems": [ITSELF], "minItems": 1},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
)
def test_schemas_without_a_finite_value(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="nothing but itself"):
        check_references(schema)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("#/$defs/b", "leads nowhere"),
        ("#/$defs/a/type/0", "leads nowhere"),
        ("#/enum/7", "leads nowhere"),
        ("#name", "only references into the schema"),
        ("http://example.invalid/#/a", "only references into the schema"),
        ("", "only references into the schema"),
    ],
)
def test_references_that_do_not_resolve(reference: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_references({"$ref": reference, "$defs": {"a": {"type": "null"}}, "enum": [1]})


def test_an_identifier_inside_would_change_the_base_of_references() -> None:
    with pytest.raises(ValueError, match=r"\$id beside references"):
        check_references({"properties": {"a": {"$id": "http://x/y", "$ref": "#"}}})
