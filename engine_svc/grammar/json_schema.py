"""Checks a JSON Schema before it is compiled.

llguidance itself refuses keywords that it does not support: ``not``, ``if``, ``uniqueItems``, ``oneOf`` with
overlapping branches. This module has the limits, and refuses what llguidance would accept with another meaning.
"""

from __future__ import annotations

import json
from typing import Any, Final

from engine_svc.grammar.patterns import check_pattern
from engine_svc.grammar.walk import Schema, reachable, said

MAX_DEPTH: Final = 64
"""Of the JSON text. llguidance's reader goes to 128."""
MAX_PROPERTIES: Final = 1000
"""Of one object."""

_EXACT_INTEGER: Final = 2**53
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OBSOLETE: Final = ("disallow", "divisibleBy", "extends")
"""Keywords of draft 3; llguidance would ignore them as annotations."""
_DRAFTS: Final = ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")

_KINDS: Final[tuple[tuple[str, type | tuple[type, ...], str], ...]] = (
    ("properties", dict, "an object"),
    ("patternProperties", dict, "an object"),
    ("required", list, "an array"),
    ("prefixItems", list, "an array"),
    ("allOf", list, "an array"),
    ("anyOf", list, "an array"),
    ("oneOf", list, "an array"),
    ("type", (str, list), "a string or an array"),
    ("$ref", str, "a string"),
    ("minItems", int, "an integer"),
)
"""Types of values that our own passes rely on."""


def parse_schema(text: str) -> Schema:
    """Raises ``ValueError`` with the place of the fault."""
    try:
        schema = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels") from None
    if not isinstance(schema, dict):
        raise ValueError("the schema must be a JSON object")
    if depth_of(schema) > MAX_DEPTH:
        raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels")
    if "$schema" in schema and not any(draft in str(schema["$schema"]) for draft in _DRAFTS):
        raise ValueError(f"$schema {said(str(schema['$schema']))} is not supported; drafts 4 to 2020-12 are")
    for place, node in reachable(schema):
        _check(place, node)
    return schema


def depth_of(value: Any) -> int:
    """The depth of nested arrays and objects in a JSON value, at most ``MAX_DEPTH`` + 1."""
    depth, level = 0, [value]
    while depth <= MAX_DEPTH and (level := [child for parent in level for child in _children(parent)]):
        depth += 1
    return depth


def declared_names(schema: Schema) -> list[str]:
    """The property names of an object schema, in the order in which they are written."""
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    demanded = required if isinstance(required, list) else []
    return list(dict.fromkeys([*names, *(name for name in demanded if isinstance(name, str))]))


def _check(place: str, schema: Schema) -> None:
    for key, kind, words in _KINDS:
        if key in schema and not isinstance(schema[key], kind):
            raise ValueError(f"{place}: {key} must be {words}")
    if not all(isinstance(name, str) for name in schema.get("required", ())):
        raise ValueError(f"{place}: required must hold strings")
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
    # A grammar cannot see that a name occurs twice, and twice counts once.
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
