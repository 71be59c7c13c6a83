"""The API's own rules for JSON Schemas with ``strict: true``.

As in OpenAI's API, each object of a strict schema must list all its properties as ``required`` and have
``additionalProperties: false``. ``schema_language.py`` checks the schema itself; the engine compiles it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from gateway.http.json_body import format_path
from svclib.errors import InvalidRequest

_Path: TypeAlias = tuple[str | int, ...]

_HOLDS_ONE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_HOLDS_LIST: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_HOLDS_NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")


def check_strict(schema: Mapping[str, Any], *, param: str, place: str) -> None:
    """Raises ``InvalidRequest`` for the first object in a schema that ``strict`` does not allow.

    ``place`` is the path of the schema in the request.
    """
    for path, part in _parts((), schema):
        fault = _strict_fault(part)
        if fault:
            raise InvalidRequest(
                f"{'.'.join(filter(None, (place, format_path(path))))} is strict and {fault}", param=param
            )


def _strict_fault(schema: Mapping[str, Any]) -> str:
    if not _is_object(schema):
        return ""
    if schema.get("additionalProperties") is not False:
        return "must have `additionalProperties: false`"
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if not isinstance(properties, dict) or not isinstance(required, list):
        return ""  # ``check_schema`` reports these.
    missing = next((name for name in properties if name not in required), None)
    return "" if missing is None else f"must list all of its properties as `required`; {missing[:100]!r} is missing"


def _is_object(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema


def _parts(path: _Path, schema: Any) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """A schema and all its subschemas, outermost first, each with its path. Depth was checked before."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for place, inner in _inner(schema):
        yield from _parts((*path, *place), inner)


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    for keyword, value in schema.items():
        if keyword in _HOLDS_ONE and isinstance(value, dict):
            yield (keyword,), value
        elif keyword in (*_HOLDS_LIST, "items") and isinstance(value, list):
            yield from (((keyword, index), each) for index, each in enumerate(value))
        elif keyword in _HOLDS_NAMED and isinstance(value, dict):
            yield from (((keyword, name), each) for name, each in value.items())
