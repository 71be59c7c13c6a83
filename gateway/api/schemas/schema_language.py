"""Validation of clients' JSON Schemas: the value of each keyword, by the drafts 4 to 2020-12.

Where drafts differ, the form of any of them is accepted (``exclusiveMinimum``, ``items``). A keyword that none of them
has may have any value. Takes linear time; size and depth were checked before.
Whether a valid schema can be enforced is decided by the engine.
Source of the rules: json-schema.org/draft-04/schema, json-schema.org/draft/2020-12/schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from gateway.api.schemas.regex_syntax import regex_fault
from gateway.http.json_body import format_path
from svclib.errors import InvalidRequest

_Path: TypeAlias = tuple[str | int, ...]
_Rule: TypeAlias = Callable[[Any], str]
"""The fault of a keyword's value, worded to follow its path; empty: none."""

_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_TYPE_FAULT: Final = f"must be one of {', '.join(sorted(_TYPES))}, or a list of these"


def check_schema(schema: Mapping[str, Any], *, param: str, place: str) -> None:
    """Raises ``InvalidRequest`` for the first fault. ``place`` is the path of the schema in the request."""
    pending: list[tuple[_Path, Any]] = [((), schema)]
    while pending:
        path, part = pending.pop()
        for keyword, fault in _faults(part):
            where = ".".join(filter(None, (place, format_path((*path, *keyword)))))
            raise InvalidRequest(f"{where} {fault}", param=param)
        pending.extend(_inner(path, part))


def _faults(part: Any) -> Iterator[tuple[_Path, str]]:
    if isinstance(part, bool):
        return
    if not isinstance(part, dict):
        yield (), "must be a schema: an object, true or false"
        return
    for keyword, value in part.items():
        if (rule := _RULES.get(keyword)) and (fault := rule(value)):
            yield (keyword,), fault


def _inner(path: _Path, part: Any) -> Iterator[tuple[_Path, Any]]:
    """The direct subschemas of a schema whose own keywords were checked."""
    for keyword, value in part.items() if isinstance(part, dict) else ():
        if keyword in _ONE and not isinstance(value, list):
            yield (*path, keyword), value
        elif keyword in _ONE or keyword in _LISTS:
            yield from (((*path, keyword, index), each) for index, each in enumerate(value))
        elif keyword in _NAMED:
            named = ((name, each) for name, each in value.items() if not _is_plain_dependency(keyword, each))
            yield from (((*path, keyword, name), each) for name, each in named)


def _is_plain_dependency(keyword: str, value: Any) -> bool:
    return keyword == "dependencies" and isinstance(value, list)


def _type(value: Any) -> str:
    names = value if isinstance(value, list) and value else [value]
    return "" if all(isinstance(name, str) and name in _TYPES for name in names) else _TYPE_FAULT


def _one(value: Any) -> str:
    return "" if isinstance(value, dict | bool) else "must be a schema: an object, true or false"


def _one_or_several(value: Any) -> str:
    return "" if isinstance(value, dict | bool | list) else "must be a schema or a list of schemas"


def _list(value: Any) -> str:
    return "" if isinstance(value, list) and value else "must be a non-empty list of schemas"


def _named(value: Any) -> str:
    return "" if isinstance(value, dict) else "must be an object of schemas"


def _dependencies(value: Any) -> str:
    if not isinstance(value, dict) or any(isinstance(each, list) and _strings(each) for each in value.values()):
        return "must be an object of schemas or of lists of strings"
    return ""


def _lists_of_strings(value: Any) -> str:
    is_one = isinstance(value, dict) and not any(map(_strings, value.values()))
    return "" if is_one else "must be an object of lists of strings"


def _strings(value: Any) -> str:
    is_one = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return "" if is_one else "must be a list of strings"


def _any_list(value: Any) -> str:
    return "" if isinstance(value, list) else "must be a list"


def _string(value: Any) -> str:
    return "" if isinstance(value, str) else "must be a string"


def _text(value: Any) -> str:
    """Annotations do not affect validity, and some clients leave them null."""
    return "" if value is None else _string(value)


def _pattern(value: Any) -> str:
    return _string(value) or regex_fault(value)


def _patterns(value: Any) -> str:
    if fault := _named(value):
        return fault
    return next((f"has a name that {fault}" for name in value if (fault := regex_fault(name))), "")


def _bool(value: Any) -> str:
    return "" if isinstance(value, bool) else "must be true or false"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> str:
    return "" if _is_number(value) else "must be a number"


def _number_or_bool(value: Any) -> str:
    return "" if _is_number(value) or isinstance(value, bool) else "must be a number"


def _positive(value: Any) -> str:
    return "" if _is_number(value) and value > 0 else "must be a number above 0"


def _count(value: Any) -> str:
    return "" if _is_number(value) and value >= 0 and value == int(value) else "must be an integer of at least 0"


_ONE: Final[Mapping[str, _Rule]] = {
    "items": _one_or_several,
    **dict.fromkeys(
        (
            "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "not",
            "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
        ),
        _one,
    ),
}  # fmt: skip
_LISTS: Final[Mapping[str, _Rule]] = dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _list)
_NAMED: Final[Mapping[str, _Rule]] = {
    "dependencies": _dependencies,
    "patternProperties": _patterns,
    **dict.fromkeys(("$defs", "definitions", "dependentSchemas", "properties"), _named),
}
_COUNTED: Final = (
    "maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties",
)  # fmt: skip
_RULES: Final[Mapping[str, _Rule]] = {
    **_ONE,
    **_LISTS,
    **_NAMED,
    **dict.fromkeys(_COUNTED, _count),
    **dict.fromkeys(("maximum", "minimum"), _number),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _number_or_bool),
    **dict.fromkeys(("$anchor", "$dynamicRef", "$id", "$ref", "$schema", "format"), _string),
    **dict.fromkeys(("$comment", "description", "title"), _text),
    "dependentRequired": _lists_of_strings,
    "enum": _any_list,
    "multipleOf": _positive,
    "pattern": _pattern,
    "required": _strings,
    "type": _type,
    "uniqueItems": _bool,
}
