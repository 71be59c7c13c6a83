"""References in a JSON Schema: they must lead somewhere in it, and come to an end.

A schema that refers only to itself has no value at all, and an object that must contain itself no finite one; a model
would have nothing to say, or could never stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

from engine_svc.grammar.json_schema import Schema, depth_of, subschemas

MAX_REFERENCES: Final = 500
MAX_LEVELS: Final = 2000
MAX_CHAIN: Final = 64

_EVERY_TYPE: Final = ("null", "boolean", "number", "string", "array", "object")


def check_references(schema: Schema) -> None:
    """Raises ``ValueError`` naming the reference."""
    nodes = list(subschemas(schema))
    references = {node["$ref"] for _, node in nodes if isinstance(node.get("$ref"), str)}
    if len(references) > MAX_REFERENCES:
        raise ValueError(f"a schema can have {MAX_REFERENCES} different references at most, not {len(references)}")
    targets = {reference: _resolve(schema, reference) for reference in sorted(references)}
    if targets:
        _check_bases(nodes)
    _check_length([schema, *targets.values()])
    finite = _with_values(targets)
    for reference in targets:
        if reference not in finite:
            raise ValueError(f"$ref {reference!r} leads to nothing but itself")


def _resolve(schema: Schema, reference: str) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        raise ValueError(f"$ref {reference!r} is not supported: only references into the schema, `#/...`, are")
    target: Any = schema
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            target = target[int(name)] if isinstance(target, list) else target[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ValueError(f"$ref {reference!r} leads nowhere") from None
    return target


def _check_bases(nodes: Iterable[tuple[str, Schema]]) -> None:
    """A schema in the schema with an identifier of its own would change what references in it mean."""
    for place, node in nodes:
        for key in ("$id", "id"):
            if place != "#" and isinstance(node.get(key), str):
                raise ValueError(f"{place}: {key} beside references is supported at the top of a schema only")


def _check_length(targets: Iterable[Any]) -> None:
    """A compiler goes into every target once, at worst from within the one before."""
    if sum(map(depth_of, targets)) > MAX_LEVELS:
        raise ValueError(f"the schema and all that its references lead to can have {MAX_LEVELS} levels at most")


def _with_values(targets: dict[str, Any]) -> set[str]:
    """Those references whose targets have a finite value: each that has one with the help of those found before."""
    found: set[str] = set()
    for _ in range(MAX_CHAIN):
        new = {ref for ref, target in targets.items() if ref not in found and _has_value(target, found)}
        if not new:
            return found
        found |= new
    raise ValueError(f"references lead to references more than {MAX_CHAIN} times")


def _has_value(schema: Any, found: set[str]) -> bool:
    if not isinstance(schema, dict):
        return schema is not False
    if isinstance(reference := schema.get("$ref"), str) and reference not in found:
        return False
    if not all(_has_value(part, found) for part in _listed(schema, "allOf")):
        return False
    for key in ("anyOf", "oneOf"):
        if (parts := _listed(schema, key)) and not any(_has_value(part, found) for part in parts):
            return False
    types = schema.get("type", _EVERY_TYPE)
    return any(_has_value_of(kind, schema, found) for kind in ([types] if isinstance(types, str) else types))


def _has_value_of(kind: str, schema: Schema, found: set[str]) -> bool:
    if kind == "object":
        others, properties = schema.get("additionalProperties", True), schema.get("properties", {})
        return all(_has_value(properties.get(name, others), found) for name in _listed(schema, "required"))
    if kind == "array":
        least, first = schema.get("minItems", 0), _listed(schema, "prefixItems")
        rest = [schema.get("items", True)] if least > len(first) else []
        return all(_has_value(item, found) for item in [*first[:least], *rest])
    return True


def _listed(schema: Schema, key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []
