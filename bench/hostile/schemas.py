"""Schemas that explode when they are compiled, a new one each time."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from bench.hostile.kind import Kind, Target

_PATTERNS: Final = [{"pattern": f"^(a|b)*a(a|b){{{number}}}$"} for number in range(1, 31)]
_NAMES: Final = {f"^p{number}_": {"type": "string"} for number in range(500)}
_LARGE: Final = {
    f"p{n}": {"type": "object", "properties": {f"q{m}": {"type": "string"} for m in range(40)}} for n in range(230)
}
_HOSTILE: Final[tuple[dict[str, Any], ...]] = (
    {"type": "string", "allOf": _PATTERNS},
    {"type": "object", "patternProperties": _NAMES},
    {"type": "object", "properties": _LARGE},
)
_PERSON: Final = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
_numbers: Final = count()


def _format(number: int, schema: dict[str, Any]) -> dict[str, Any]:
    """A response format that is not in the engine's cache."""
    schema = schema | {"description": str(number)}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


async def _explode(target: Target) -> str:
    number = next(_numbers)
    return await target.answer(target.chat(max_tokens=4, **_format(number, _HOSTILE[number % len(_HOSTILE)])))


_GOOD: Final = {
    "plain": dict,
    "json_object": lambda: {"response_format": {"type": "json_object"}},
    "a new schema": lambda: _format(next(_numbers), _PERSON),
}
KINDS: Final = (
    Kind("schemas", "30 patterns that must all match, names by 500 patterns, 256 KB", _explode, 2, good=_GOOD),
)
