"""JSON Schema: what is accepted, and what is said of the rest.

llguidance refuses by name what it does not know: ``not``, ``if``, ``uniqueItems``, ``oneOf`` with overlapping branches.
Here are the limits, and the cases in which it would be too generous.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from engine_svc.grammar.patterns import check_pattern

Schema: TypeAlias = dict[str, Any]

MAX_DEPTH: Final = 64
"""Of the JSON text. llguidance's reader goes to 128."""
MAX_PROPERTIES: Final = 1000
"""Of one object."""
_LONGEST_PLACE: Final = 200
"""What is said of a place; names can be long."""

_EXACT_INTEGER: Final = 2**53
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OBSOLETE: Final = ("disallow", "divisibleBy", "extends")
"""Of draft 3; llguidance would take them for annotations."""
_DRAFTS: Final = ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")

_ONE_SCHEMA: Final = ("items", "additionalItems", "additionalProperties")
_SCHEMA_LISTS: Final = ("prefixItems", "allOf", "anyOf", "oneOf", "items")
_SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")


def parse_schema(text: str) -> Schema:
    """Raises ``ValueError``, saying where it is wrong."""
    try:
        schema = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels") from None
    if not isinstance(schema, dict):
        raise ValueError("the schema must be a JSON object")
    if depth_of(schema) > MAX_DEPTH:
        raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels")
    if "$schema" in schema and not any(draft in str(schema["$schema"]) for draft in _DRAFTS):
        raise ValueError(f"$schema {schema['$schema']!r} is not supported; drafts 4 to 2020-12 are")
    for place, node in subschemas(schema):
        _check(place, node)
    return schema


def depth_of(value: Any) -> int:
    """How deep arrays and objects are nested in a JSON value, up to one more than is allowed."""
    depth, level = 0, [value]
    while depth <= MAX_DEPTH and (level := [child for parent in level for child in _children(parent)]):
        depth += 1
    return depth


def subschemas(schema: Schema, place: str = "#") -> Iterator[tuple[str, Schema]]:
    """A schema and all schemas in it, each with a JSON pointer; only those that are objects."""
    yield place, schema
    for name, child in _parts(schema):
        if isinstance(child, dict):
            yield from subschemas(child, f"{place}/{name}"[:_LONGEST_PLACE])


def _parts(schema: Schema) -> Iterator[tuple[str, Any]]:
    """What is a schema in a schema, one level down."""
    yield from ((key, schema[key]) for key in _ONE_SCHEMA if key in schema)
    for key in _SCHEMA_LISTS:
        if isinstance(children := schema.get(key), list):
            yield from ((f"{key}/{number}", child) for number, child in enumerate(children))
    for key in _SCHEMA_MAPS:
        if isinstance(named := schema.get(key), dict):
            yield from ((f"{key}/{name}", child) for name, child in named.items())


def declared_names(schema: Schema) -> list[str]:
    """The names that an object schema speaks of, in the order in which they come."""
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    demanded = required if isinstance(required, list) else []
    return list(dict.fromkeys([*names, *(name for name in demanded if isinstance(name, str))]))


def _check(place: str, schema: Schema) -> None:
    for pattern in (schema.get("pattern"), *_children_names(schema.get("patternProperties"))):
        if isinstance(pattern, str):
            check_pattern(pattern)
    for key in _BOUNDS:
        if _is_inexact(schema.get(key)):
            raise ValueError(f"{place}: {key} is beyond 2^53, where numbers are no longer exact")
    for key in _OBSOLETE:
        if key in schema:
            raise ValueError(f"{place}: {key} is of draft 3 and not supported")
    _check_names(place, schema)


def _check_names(place: str, schema: Schema) -> None:
    names = declared_names(schema)
    if len(names) > MAX_PROPERTIES:
        raise ValueError(f"{place}: an object can have {MAX_PROPERTIES} properties at most, not {len(names)}")
    least, required = schema.get("minProperties", 0), schema.get("required", ())
    # A grammar cannot see that a name comes twice, and twice is once.
    if isinstance(least, int) and isinstance(required, list | tuple) and least > len(required) + 1:
        raise ValueError(f"{place}: minProperties can be 1 more than the number of required properties at most")


def _is_inexact(bound: Any) -> bool:
    return isinstance(bound, int | float) and abs(bound) > _EXACT_INTEGER


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _children_names(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
