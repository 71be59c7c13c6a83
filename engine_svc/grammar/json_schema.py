"""JSON Schema: what is accepted, and what is changed so that no output matches the grammar and not the schema.

llguidance refuses by name what it does not know: ``not``, ``if``, ``uniqueItems``, ``oneOf`` with overlapping branches.
Here are the limits, and the cases in which it would be too generous or never come to an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from engine_svc.grammar.patterns import check_pattern

Schema: TypeAlias = dict[str, Any]

MAX_DEPTH: Final = 64
"""Of the JSON text. llguidance's reader goes to 128."""

ANY_OBJECT: Final[Schema] = {"type": "object"}

_EXACT_INTEGER: Final = 2**53
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

_ONE_SCHEMA: Final = ("items", "additionalItems", "additionalProperties")
_SCHEMA_LISTS: Final = ("prefixItems", "allOf", "anyOf", "oneOf", "items")
_SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")

_WHITE_SPACE: Final = r"\x20|\n\x20{0,24}"
"""Between two tokens of JSON: a space, or a new line with indentation. Without a bound a model can go on for ever."""


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
    for place, node in subschemas(schema):
        _check(place, node)
    return schema


def embedded(schema: Schema) -> str:
    """The schema as text that can follow ``%json``, with our options, which its author cannot change."""
    options = {"whitespace_pattern": _WHITE_SPACE, "json_allow_general_unicode_escapes": True}
    return json.dumps({**schema, "x-guidance": options})


def depth_of(value: Any) -> int:
    """How deep arrays and objects are nested in a JSON value."""
    depth, level = 0, [value]
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
        if depth > MAX_DEPTH:
            break
    return depth


def subschemas(schema: Schema, place: str = "#") -> Iterator[tuple[str, Schema]]:
    """A schema and all schemas in it, each with a JSON pointer; only those that are objects."""
    yield place, schema
    for key in _ONE_SCHEMA:
        if isinstance(schema.get(key), dict):
            yield from subschemas(schema[key], f"{place}/{key}")
    for key in _SCHEMA_LISTS:
        if isinstance(schema.get(key), list):
            for number, child in enumerate(schema[key]):
                if isinstance(child, dict):
                    yield from subschemas(child, f"{place}/{key}/{number}")
    for key in _SCHEMA_MAPS:
        if isinstance(schema.get(key), dict):
            for name, child in schema[key].items():
                if isinstance(child, dict):
                    yield from subschemas(child, f"{place}/{key}/{name}")


def _check(place: str, schema: Schema) -> None:
    patterns = [schema.get("pattern"), *_keys(schema.get("patternProperties"))]
    for pattern in patterns:
        if isinstance(pattern, str):
            check_pattern(pattern)
    for key in _BOUNDS:
        if isinstance(bound := schema.get(key), int) and abs(bound) > _EXACT_INTEGER:
            raise ValueError(f"{place}: {key} is beyond 2^53, where numbers are no longer exact")


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else []


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
