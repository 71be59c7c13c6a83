"""Closes objects, so that a model writes only properties that the schema declares.

JSON Schema leaves an object open by default, and a model that may invent properties does so until it is cut off. So a
schema with ``properties`` and without ``additionalProperties`` is treated as if the latter were false. Schemas that
apply to the same value are closed together: the parts of an ``allOf``, closed separately, would forbid each other's
properties. A value that is valid by the closed schema is valid by the original one.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from engine_svc.grammar.json_schema import declared_names
from engine_svc.grammar.walk import Schema, reachable, resolve, subschemas

_OPEN: Final = "pellucid-open"
"""Key of copies of definitions that are not closed separately, for references from schemas that are closed together."""
_DEFINITIONS: Final = ("$defs", "definitions")
_NAMING: Final = ("properties", "patternProperties", "required", "additionalProperties")
_ALTERNATIVES: Final = ("anyOf", "oneOf")


def closed(schema: Schema) -> Schema:
    """A closed copy."""
    return _Closing(schema).closed()


@dataclass(slots=True)
class _Closing:
    """References are resolved in ``original``; a copy is closed."""

    original: Schema
    places: dict[int, str] = field(init=False, default_factory=dict)
    """References to the copies of schemas, by the identity of the original schemas."""
    variants: dict[str, Schema] = field(init=False, default_factory=dict)

    def closed(self) -> Schema:
        copy = deepcopy(self.original)
        self._close([node for _, node in reachable(copy)], set())
        done = 0
        while done < len(self.variants):
            variant = self.variants[str(done)]
            self._close([node for _, node in subschemas(variant)], {id(variant)})
            done += 1
        return copy | {self._key: self.variants} if self.variants else copy

    @property
    def _key(self) -> str:
        return _OPEN + "_" * sum(key.startswith(_OPEN) for key in self.original)

    def _close(self, nodes: list[Schema], parts: set[int]) -> None:
        """Close these schemas, all in one schema, except those that are ``parts`` of others."""
        wholes = [node for node in nodes if _num_sources(node) > 1]
        found = [(whole, _Names.of(self._together(whole))) for whole in wholes]
        parts = parts | {id(part) for whole in wholes for part in _parts(whole) if part is not whole}
        for whole, names in found:
            if names.are_given:
                self._open_references(whole)
            if names.can_be_closed and id(whole) not in parts:
                whole["allOf"] = [*whole.get("allOf", ()), names.closing]
        for node in nodes:
            if _num_sources(node) <= 1 and id(node) not in parts:
                _close_alone(node)

    def _together(self, whole: Schema) -> Iterator[Schema]:
        """All schemas that may apply to a value of the whole, each once."""
        seen: set[int] = set()
        waiting = [whole]
        while waiting:
            for part in _parts(waiting.pop()):
                if id(part) not in seen:
                    seen.add(id(part))
                    yield part
                    waiting += self._target(part)

    def _target(self, schema: Schema) -> list[Schema]:
        target = resolve(self.original, schema["$ref"]) if "$ref" in schema else None
        return [target] if isinstance(target, dict) else []

    def _open_references(self, whole: Schema) -> None:
        """Point the references of a whole to schemas that are not closed separately."""
        for part in _parts(whole):
            for target in self._target(part) if not part.get("$ref", "").startswith(f"#/{self._key}/") else ():
                part["$ref"] = self._place_of(target)

    def _place_of(self, target: Schema) -> str:
        if id(target) not in self.places:
            name = str(len(self.variants))
            self.places[id(target)] = f"#/{self._key}/{name}"
            is_root = target is self.original
            kept = {key: value for key, value in target.items() if not (is_root and key in _DEFINITIONS)}
            self.variants[name] = deepcopy(kept)
        return self.places[id(target)]


@dataclass(frozen=True, slots=True)
class _Names:
    """What schemas that apply to the same object declare about its properties."""

    declared: dict[str, Any]
    patterns: dict[str, Any]
    are_given: bool
    is_decided: bool
    """Whether a schema itself determines which other properties there may be."""
    least: int

    @classmethod
    def of(cls, schemas: Iterator[Schema]) -> _Names:
        parts = list(schemas)
        return cls(
            declared={name: True for part in parts for name in declared_names(part)},
            patterns={pattern: True for part in parts for pattern in part.get("patternProperties", ())},
            are_given=any("properties" in part for part in parts),
            is_decided=any(key in part for part in parts for key in ("additionalProperties", "enum", "const")),
            least=max((part.get("minProperties", 0) for part in parts), default=0),
        )

    @property
    def can_be_closed(self) -> bool:
        return self.are_given and not self.is_decided and (self.least <= len(self.declared) or bool(self.patterns))

    @property
    def closing(self) -> Schema:
        """A schema that allows no other properties."""
        patterns = {"patternProperties": self.patterns} if self.patterns else {}
        return {"properties": self.declared, **patterns, "additionalProperties": False}


def _close_alone(schema: Schema) -> None:
    names = _Names.of(iter([schema]))
    if names.can_be_closed:
        named = {} if names.patterns else names.declared
        schema["properties"] = schema["properties"] | {name: True for name in named if name not in schema["properties"]}
        schema["additionalProperties"] = False


def _num_sources(schema: Schema) -> int:
    """How many schemas apply to a value of this one, itself included if it has keywords for properties."""
    applied = len(schema.get("allOf", ())) + sum(key in schema for key in ("$ref", *_ALTERNATIVES))
    return applied + any(key in schema for key in _NAMING)


def _parts(whole: Schema) -> Iterator[Schema]:
    """A schema, and those in it that apply to the same value."""
    waiting = [whole]
    while waiting:
        part = waiting.pop(0)
        yield part
        inner = (other for key in ("allOf", *_ALTERNATIVES) for other in part.get(key, ()))
        waiting += [other for other in inner if isinstance(other, dict)]
