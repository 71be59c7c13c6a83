"""Fifty JSON Schemas in the style of real clients, bounded so that a small model finishes."""

from __future__ import annotations

from typing import Any, Final

_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 20}
_WORD: Final = {"type": "string", "pattern": "^[a-z]{2,10}$"}
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 999}
_SCORE: Final = {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25}
_FLAG: Final = {"type": "boolean"}


def _object(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    """A closed object; by default all properties are required."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _list(items: Any, least: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


SCHEMAS: Final[dict[str, Any]] = {
    "string": _NAME,
    "word": _WORD,
    "integer": _COUNT,
    "negative integer": {"type": "integer", "minimum": -20, "maximum": -10},
    "number": _SCORE,
    "boolean": _FLAG,
    "null": {"type": "null"},
    "constant": {"const": {"kind": "fixed", "version": 2}},
    "enum of texts": {"enum": ["red", "green", "blue"]},
    "enum of everything": {"enum": [1, "one", None, True, [1], {"one": 1}]},
    "text or nothing": {"type": ["null", "integer"], "minimum": 0, "maximum": 99},
    "any of": {"anyOf": [_WORD, _COUNT]},
    "one of": {"oneOf": [_WORD, {"type": "boolean"}]},
    "all of": {"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 8}]},
    "even number": {"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 2},
    "exclusive bounds": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 5},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
    "identifier": {"type": "string", "format": "uuid"},
    "address of a machine": {"type": "string", "format": "ipv4"},
    "phone": {"type": "string", "pattern": r"^\+[0-9]{2} [0-9]{3} [0-9]{4}$"},
    "price": {"type": "string", "pattern": r"^\$[0-9]{1,4}\.[0-9]{2}$"},
    "letters beyond ASCII": {"enum": ["größe", "日本", "naïve"]},
    "empty list": {"type": "array", "maxItems": 0},
    "list of numbers": _list(_COUNT, 2, 4),
    "list of words": _list(_WORD, 1, 3),
    "list of lists": _list(_list(_COUNT, 1, 2), 1, 2),
    "pair": {"type": "array", "prefixItems": [_WORD, _COUNT], "items": False, "minItems": 2},
    "empty object": _object(),
    "person": _object(name=_NAME, age=_COUNT),
    "optional property": _object(["name"], name=_NAME, nickname=_NAME),
    "nothing required": _object([], a=_FLAG, b=_FLAG),
    "nested": _object(
        user=_object(name=_NAME, address=_object(city=_NAME, zip={"type": "string", "pattern": "^[0-9]{5}$"}))
    ),
    "list of objects": _list(_object(item=_WORD, quantity=_COUNT), 1, 3),
    "map": {"type": "object", "additionalProperties": _COUNT, "maxProperties": 2},
    "map by pattern": {
        "type": "object",
        "patternProperties": {"^[a-z]{3}$": _FLAG},
        "additionalProperties": False,
        "maxProperties": 2,
    },
    "open object": {"type": "object", "properties": {"id": _COUNT}, "required": ["id"], "maxProperties": 1},
    "at least one": {"type": "object", "properties": {"a": _FLAG}, "required": ["a"], "additionalProperties": False},
    "reference": {"$ref": "#/$defs/point", "$defs": {"point": _object(x=_COUNT, y=_COUNT)}},
    "shared definition": {
        "$defs": {"point": _object(x=_COUNT, y=_COUNT)},
        **_object(start={"$ref": "#/$defs/point"}, end={"$ref": "#/$defs/point"}),
    },
    "definitions of old": {"definitions": {"flag": _FLAG}, **_object(on={"$ref": "#/definitions/flag"})},
    "tree": {
        "$defs": {"leaf": _object(value=_COUNT), "node": _object(left={"$ref": "#/$defs/leaf"}, value=_COUNT)},
        "$ref": "#/$defs/node",
    },
    "recursion": {
        "$defs": {"node": _object(value=_FLAG, next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]})},
        "$ref": "#/$defs/node",
    },
    "tagged union": {
        "oneOf": [
            _object(kind={"const": "circle"}, radius=_COUNT),
            _object(kind={"const": "square"}, side=_COUNT),
        ]
    },
    "weather": _object(
        city=_NAME, unit={"enum": ["celsius", "fahrenheit"]}, days={"type": "integer", "minimum": 1, "maximum": 7}
    ),
    "sentiment": _object(label={"enum": ["positive", "neutral", "negative"]}, score=_SCORE),
    "as pydantic writes it": {
        "title": "Event",
        "type": "object",
        "properties": {
            "name": {"title": "Name", "type": "string", "maxLength": 20},
            "day": {"title": "Day", "type": "string", "format": "date"},
            "guests": {"title": "Guests", "type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2},
            "place": {"anyOf": [{"type": "string", "maxLength": 12}, {"type": "null"}], "default": None},
        },
        "required": ["name", "day", "guests"],
        "additionalProperties": False,
    },
    "names with signs": _object(**{"first name": _WORD, "e-mail?": _FLAG, 'say "hi"': _COUNT}),
    "descriptions": {"description": "A colour.", "type": "string", "enum": ["cyan", "mauve"], "examples": ["cyan"]},
    "any object of words": {
        "type": "object",
        "properties": {"a": _WORD, "b": _WORD, "c": _WORD},
        "required": ["c"],
        "additionalProperties": False,
    },
}
