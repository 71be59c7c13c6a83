"""Random schemas and random values: grammar and ``jsonschema`` agree on the closed schema, or it is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jsonschema
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine_svc.grammar.closing import closed
from svclib.errors import InvalidRequest
from tests.engine_svc.grammar.given import accepts, compiled, schema
from tests.engine_svc.grammar.test_schema_suite import spellings

NAMES = st.sampled_from(["a", "b", "ab", "é"])
LEAVES = st.one_of(
    st.sampled_from([None, True, False, 0.5, -2.25]),
    st.integers(-3, 6),
    st.sampled_from(["", "a", "ab", "é", "xyz", "a\n"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
)
NUMBERS: dict[str, Any] = {
    "minimum": st.integers(-3, 3),
    "maximum": st.integers(0, 6),
    "exclusiveMinimum": st.integers(-3, 2),
    "multipleOf": st.sampled_from([2, 3, 0.5]),
}
TEXTS: dict[str, Any] = {
    "minLength": st.integers(0, 3),
    "maxLength": st.integers(1, 4),
    "pattern": st.sampled_from(["^a", "b$", "a|é", "^[^a]*$", "."]),
}


def keywords(kinds: list[Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={"type": st.sampled_from(kinds), **optional})


def lists(inner: Any) -> st.SearchStrategy[dict[str, Any]]:
    least, most = st.integers(0, 2), st.integers(1, 4)
    first = st.lists(inner, min_size=1, max_size=2)
    return keywords(["array"], {"items": inner, "prefixItems": first, "minItems": least, "maxItems": most})


def objects(inner: Any) -> st.SearchStrategy[dict[str, Any]]:
    parts = {
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": st.just(False) | inner,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=1),
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(1, 4),
    }
    return keywords(["object", ["object", "null"]], parts)


def combined(inner: Any) -> st.SearchStrategy[dict[str, Any]]:
    ways = st.sampled_from(["anyOf", "oneOf", "allOf"])
    return st.dictionaries(ways, st.lists(inner, min_size=1, max_size=2), min_size=1, max_size=2)


def merged(inner: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda one, other: one | other, objects(inner), combined(inner))


SCHEMAS = st.recursive(
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)}),
        keywords(["integer", "number", ["number", "null"]], NUMBERS),
        keywords(["string", ["string", "null"]], TEXTS),
        keywords(["boolean", "null"], {}),
    ),
    lambda inner: st.one_of(lists(inner), objects(inner), combined(inner), merged(inner)),
    max_leaves=6,
)


@settings(max_examples=250)
@given(constraint=SCHEMAS, values=st.lists(VALUES, min_size=5, max_size=15))
def test_a_grammar_agrees_with_jsonschema_or_is_refused(constraint: dict[str, Any], values: list[Any]) -> None:
    try:
        grammar = compiled(schema(constraint))
    except InvalidRequest:
        assume(False)
    written = jsonschema.Draft202012Validator(closed(constraint))
    for value in values:
        accepted = any(accepts(grammar, text) for text in spellings(value))
        assert accepted == written.is_valid(value), value


KEYWORDS = st.sampled_from([
    "$ref", "$defs", "type", "properties", "patternProperties", "additionalProperties", "required", "minProperties",
    "items", "prefixItems", "additionalItems", "minItems", "maxItems", "allOf", "anyOf", "oneOf", "enum", "const",
    "pattern", "format", "minLength", "minimum", "multipleOf", "$id", "$schema", "a",
])  # fmt: skip
SCRAPS = st.one_of(
    LEAVES,
    st.sampled_from(["#", "#/a", "#/$defs/a", "#/items", "#/anyOf/0", "object", "array", "string", "integer", "["]),
)
NONSENSE = st.recursive(
    SCRAPS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=500)
@given(nonsense=st.dictionaries(KEYWORDS, NONSENSE, max_size=6))
def test_nonsense_compiles_or_is_refused(nonsense: dict[str, Any]) -> None:
    with suppress(InvalidRequest):
        compiled(schema(nonsense))
