"""Checks the references in a JSON Schema: each must resolve within the schema, and have a finite value.

A schema that refers only to itself has no value at all, and an object that must contain itself has no finite one: a
model could write nothing, or never stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from engine_svc.grammar.walk import Schema, reachable, resolve, said

MAX_REFERENCES: Final = 500
MAX_LEVELS: Final = 2000
MAX_CHAIN: Final = 64
MAX_LOOKS: Final = 100_000
"""Visits of schemas, in all rounds of the search for those that have a value."""

_EVERY_TYPE: Final = ("null", "boolean", "number", "string", "array", "object")


def check_references(schema: Schema) -> None:
    """Raises ``ValueError`` naming the reference."""
    nodes = list(reachable(schema))
    references = {node["$ref"] for _, node in nodes if isinstance(node.get("$ref"), str)}
    if len(references) > MAX_REFERENCES:
        raise ValueError(f"a schema can have {MAX_REFERENCES} different references at most, not {len(references)}")
    targets = {reference: resolve(schema, reference) for reference in sorted(references)}
    if targets:
        _check_bases(nodes)
    _check_length([schema, *targets.values()])
    finite = _with_values(targets)
    for reference in targets:
        if reference not in finite:
            raise ValueError(f"$ref {said(reference)} leads to nothing but itself")


def _check_bases(nodes: Iterable[tuple[str, Schema]]) -> None:
    """An identifier inside the schema would change the base of the references below it."""
    for place, node in nodes:
        for key in ("$id", "id"):
            if place != "#" and isinstance(node.get(key), str):
                raise ValueError(f"{place}: {key} beside references is supported at the top of a schema only")


def _check_length(targets: Iterable[Any]) -> None:
    """The compiler visits every target once, at worst nested in the one before."""
    known: dict[int, int] = {}
    if sum(_levels(target, known) for target in targets) > MAX_LEVELS:
        raise ValueError(f"the schema and all targets of its references can have {MAX_LEVELS} levels at most")


def _levels(value: Any, known: dict[int, int]) -> int:
    """The depth of nested arrays and objects in a JSON value; each is visited once."""
    if not isinstance(value, dict | list):
        return 0
    if id(value) not in known:
        children = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + max((_levels(child, known) for child in children), default=-1)
    return known[id(value)]


def _with_values(targets: dict[str, Any]) -> set[str]:
    """The references whose targets have a finite value, found in rounds from those found before."""
    found: set[str] = set()
    num_left = MAX_LOOKS
    for _ in range(MAX_CHAIN):
        looks = _Round(found, num_left)
        new = {reference for reference, target in targets.items() if reference not in found and looks.at(target)}
        if not new:
            return found
        found, num_left = found | new, looks.num_left
    raise ValueError(f"references lead to references more than {MAX_CHAIN} times")


@dataclass(slots=True)
class _Round:
    """Which schemas have a finite value, given that the references in ``found`` have one."""

    found: set[str]
    num_left: int
    known: dict[int, bool] = field(default_factory=dict)

    def at(self, schema: Any) -> bool:
        self.num_left -= 1
        if self.num_left < 0:
            raise ValueError(
                f"the schema is too large for its references: checking them takes more than {MAX_LOOKS} visits"
            )
        if not isinstance(schema, dict):
            return schema is not False
        if id(schema) not in self.known:
            self.known[id(schema)] = self._has_value(schema)
        return self.known[id(schema)]

    def _has_value(self, schema: Schema) -> bool:
        if "$ref" in schema and schema["$ref"] not in self.found:
            return False
        if not all(map(self.at, schema.get("allOf", ()))):
            return False
        for key in ("anyOf", "oneOf"):
            if (parts := schema.get(key)) and not any(map(self.at, parts)):
                return False
        types = schema.get("type", _EVERY_TYPE)
        kinds = {types} if isinstance(types, str) else {kind for kind in types if isinstance(kind, str)}
        return any(self._has_value_of(kind, schema) for kind in kinds)

    def _has_value_of(self, kind: str, schema: Schema) -> bool:
        if kind == "object":
            others, properties = schema.get("additionalProperties", True), schema.get("properties", {})
            return all(self.at(properties.get(name, others)) for name in schema.get("required", ()))
        if kind == "array":
            least, first = schema.get("minItems", 0), schema.get("prefixItems", [])
            rest = [schema.get("items", True)] if least > len(first) else []
            return all(map(self.at, [*first[:least], *rest]))
        return True
