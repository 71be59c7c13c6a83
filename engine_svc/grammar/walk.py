"""Walks over a JSON Schema: the schemas in it, and the targets of its references.

Linear in the size of the schema, and without recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

Schema: TypeAlias = dict[str, Any]
_Place: TypeAlias = tuple[str, Any]

_LONGEST_PLACE: Final = 200
"""Characters of a place or name in an error; names can be long."""

_ONE_SCHEMA: Final = ("items", "additionalItems", "additionalProperties")
_SCHEMA_LISTS: Final = ("prefixItems", "allOf", "anyOf", "oneOf", "items")
_SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")


def subschemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """A schema and all schemas in it, each with a JSON pointer; only those that are objects."""
    return _walk(schema, _parts)


def reachable(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The same, and all targets of references, wherever they are; each once."""
    return _walk(schema, lambda node: [*_parts(node), *_target(schema, node.get("$ref"))])


def resolve(schema: Schema, reference: str) -> Any:
    """The target of a reference. Raises ``ValueError`` with the reference if there is none, or not in the schema."""
    if reference != "#" and not reference.startswith("#/"):
        raise ValueError(f"$ref {said(reference)} is not supported: only references into the schema, `#/...`, are")
    target: Any = schema
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            target = target[int(name)] if isinstance(target, list) else target[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ValueError(f"$ref {said(reference)} leads nowhere") from None
    return target


def said(text: str) -> str:
    """A client's text as errors quote it, shortened."""
    return repr(text[:_LONGEST_PLACE])


def _walk(schema: Schema, parts: Callable[[Schema], list[_Place]]) -> Iterator[tuple[str, Schema]]:
    seen: set[int] = set()
    waiting: list[_Place] = [("#", schema)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, dict) and id(node) not in seen:
            seen.add(id(node))
            yield place, node
            inner = [
                (name if name[0] == "#" else f"{place}/{name}"[:_LONGEST_PLACE], part) for name, part in parts(node)
            ]
            waiting += reversed(inner)


def _parts(schema: Schema) -> list[_Place]:
    """The schemas in a schema, one level down."""
    parts: list[_Place] = [(key, schema[key]) for key in _ONE_SCHEMA if key in schema]
    for key in _SCHEMA_LISTS:
        if isinstance(children := schema.get(key), list):
            parts += ((f"{key}/{number}", child) for number, child in enumerate(children))
    for key in _SCHEMA_MAPS:
        if isinstance(named := schema.get(key), dict):
            parts += ((f"{key}/{name}", child) for name, child in named.items())
    return parts


def _target(schema: Schema, reference: Any) -> list[_Place]:
    """The target of a reference; none if it does not resolve, which ``check_references`` reports."""
    try:
        return [(reference[:_LONGEST_PLACE], resolve(schema, reference))] if isinstance(reference, str) else []
    except ValueError:
        return []
