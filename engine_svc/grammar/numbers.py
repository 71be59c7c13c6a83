"""Limits the length of JSON numbers: 17 significant digits, which are enough to tell all doubles apart.

JSON Schema has no keyword for it and llguidance's numbers are unbounded, so a small model may write digits until it is
cut off. A second grammar limits them: it has any JSON value with short numbers in place of every schema. It is used
only while an output is in a long run of digits, so other masks cost nothing more. If it allows nothing, the constraint
alone decides.
"""

from __future__ import annotations

from typing import Final

from engine_svc.grammar.spelling import WHITE_SPACE
from engine_svc.grammar.walk import Schema, reachable

MAX_DIGITS: Final = 17
"""In the mantissa."""
MAX_EXPONENT_DIGITS: Final = 3

JSON_VALUE: Final = "pellucid_value"
_SHORT_NUMBERS: Final = "|".join(
    ("0" if digits == 0 else f"[1-9][0-9]{{{digits - 1}}}")
    + (f"(\\.[0-9]{{1,{MAX_DIGITS - digits}}})?" if digits < MAX_DIGITS else "")
    for digits in range(MAX_DIGITS + 1)
)
JSON_RULES: Final = rf"""
pellucid_value: pellucid_object | pellucid_array | PELLUCID_STRING | PELLUCID_NUMBER | /true|false|null/
pellucid_object: "{{" ws? (pellucid_member ws? ("," ws? pellucid_member ws?)*)? "}}"
pellucid_member: PELLUCID_STRING ws? ":" ws? pellucid_value
pellucid_array: "[" ws? (pellucid_value ws? ("," ws? pellucid_value ws?)*)? "]"
ws: /{WHITE_SPACE}/
PELLUCID_STRING: /"([^"\\]|\\(.|\n))*"/
PELLUCID_NUMBER: /-?({_SHORT_NUMBERS})([eE][+-]?[0-9]{{1,{MAX_EXPONENT_DIGITS}}})?/
""".replace("ws", "pellucid_space")

_EVERY_TYPE: Final = frozenset({"integer", "number", "object", "array"})
"""Every type whose values can contain a number."""
_ELSEWHERE: Final = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")
"""A schema without ``type`` that has one of these does not allow numbers by itself."""
_LEAST: Final = ("minimum", "exclusiveMinimum")
_MOST: Final = ("maximum", "exclusiveMaximum")


def may_have_long_numbers(schema: Schema) -> bool:
    """Whether a value may contain a number whose digits the schema does not bound; true where that is unclear."""
    return any(_may_be_long(node) or _holds_anything(node) for _, node in reachable(schema))


def _may_be_long(schema: Schema) -> bool:
    kinds = _kinds(schema)
    return "number" in kinds or ("integer" in kinds and not _is_bounded(schema))


def _holds_anything(schema: Schema) -> bool:
    """Whether a part of the value has no schema other than ``true``."""
    kinds = _kinds(schema)
    named = (part for key in ("properties", "patternProperties") for part in schema.get(key, {}).values())
    return (
        ("object" in kinds and schema.get("additionalProperties", True) is True)
        or ("array" in kinds and schema.get("items", True) is True)
        or any(part is True for part in named)
    )


def _kinds(schema: Schema) -> frozenset[str]:
    types = schema.get("type")
    if types is None:
        return frozenset() if any(key in schema for key in _ELSEWHERE) else _EVERY_TYPE
    return frozenset([types] if isinstance(types, str) else filter(lambda kind: isinstance(kind, str), types))


def _is_bounded(schema: Schema) -> bool:
    return any(key in schema for key in _LEAST) and any(key in schema for key in _MOST)
