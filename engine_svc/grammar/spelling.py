"""How names and strings of a JSON value may be spelled, as options for llguidance and changes to the schema.

llguidance allows escapes in the name of an additional property: ``"\\u0061"`` passes for a name other than ``"a"``, and
a parser of the output finds ``a`` with a value that its schema forbids. Names that match a pattern have one spelling
only, so additional properties become properties whose names match the pattern of all other names. Where that is
impossible, because patterns must not overlap, ``\\u`` escapes are not allowed at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Final
from urllib.parse import unquote

from engine_svc.grammar.json_schema import declared_names
from engine_svc.grammar.walk import Schema, reachable, subschemas

_Tree = dict[str, "_Tree"]

_MOST_NAMES: Final = 200
"""The size of the pattern of all other names grows with them, and so does the time to compile it."""
_LONGEST_NAME: Final = 80
"""The pattern nests three levels for each letter, and llguidance's limit is 250."""

WHITE_SPACE: Final = r"\x20|\n\x20{0,24}"
"""Between two tokens of JSON: a space, or a newline with indentation. Unbounded, a model could go on for ever."""
_SHORT_ESCAPES: Final = 'nrbtf\\"'

_APPLICATORS: Final = ("$ref", "anyOf", "oneOf")
_ANNOTATIONS: Final = frozenset({
    "$defs", "definitions", "$schema", "$id", "id", "$anchor", "$comment", "title", "description", "default",
    "examples", "deprecated", "readOnly", "writeOnly",
})  # fmt: skip
_ANY: Final = r"[\s\S]"
_END: Final = ""
"""Key of a tree node at which a name ends."""


def embedded(schema: Schema) -> str:
    """The schema as text that can follow ``%json``, with our options instead of any that it has."""
    options: dict[str, Any] = {"whitespace_pattern": WHITE_SPACE, "json_allow_general_unicode_escapes": True}
    nodes = [node for _, node in reachable(schema)]
    if any(map(_is_open, nodes)):
        # Places that hold schemas only because references lead to them.
        has_hidden = len(nodes) > sum(1 for _ in subschemas(schema))
        if has_hidden or any(map(_must_not_change, nodes)):
            options["json_allowed_escapes"] = _SHORT_ESCAPES
        else:
            schema = _with_patterns(schema)
    return json.dumps({**schema, "x-guidance": options})


def other_names(names: Iterable[str]) -> str:
    """A pattern that matches, as a whole, every text except ``names``."""
    tree: _Tree = {}
    for name in names:
        node = tree
        for letter in name:
            node = node.setdefault(letter, {})
        node[_END] = {}
    return f"^({_others(tree)})$"


def _is_open(schema: Schema) -> bool:
    """Whether an object has declared names and may have others."""
    return _has_names(schema) and schema.get("additionalProperties", True) is not False


def _has_names(schema: Schema) -> bool:
    return bool(declared_names(schema)) or bool(schema.get("patternProperties"))


def _must_not_change(schema: Schema) -> bool:
    """Whether our pattern would overlap with others, of this schema or of one that it is merged with, or be huge."""
    names = declared_names(schema)
    too_large = len(names) > _MOST_NAMES or max(map(len, names), default=0) > _LONGEST_NAME
    own_patterns = bool(schema.get("patternProperties")) and _is_open(schema)
    into_the_changed = "additionalProperties" in unquote(schema.get("$ref", ""))
    return _is_merged(schema) or own_patterns or into_the_changed or too_large or _would_be_repeated(schema)


def _would_be_repeated(schema: Schema) -> bool:
    """Whether the schema of additional properties would be copied for each name that is only required. Nested, that
    doubles the text with every level."""
    others, properties = schema.get("additionalProperties"), schema.get("properties", {})
    return isinstance(others, dict) and any(name not in properties for name in schema.get("required", ()))


def _is_merged(schema: Schema) -> bool:
    """Whether keywords beside a reference or alternatives apply too."""
    applicators = [key for key in _APPLICATORS if key in schema]
    others = schema.keys() - _ANNOTATIONS - set(applicators[:1])
    return "allOf" in schema or (bool(applicators) and bool(others))


def _with_patterns(schema: Schema) -> Schema:
    """A copy in which open objects with declared names have a pattern for all others."""
    copy: Schema = deepcopy(schema)
    for node in [node for _, node in subschemas(copy)]:
        if _is_open(node):
            names, others = declared_names(node), node.get("additionalProperties", True)
            node["properties"] = dict.fromkeys(names, others) | node.get("properties", {})
            node["patternProperties"] = {other_names(names): others}
            node["additionalProperties"] = False
    return copy


def _others(tree: _Tree) -> str:
    """A pattern for what may follow here in none of the names: the end, another letter, or one of theirs and then
    others."""
    letters = [letter for letter in tree if letter != _END]
    ways = [] if _END in tree else [""]
    if not letters:
        return "|".join([*ways, f"{_ANY}+"])
    ways.append(f"[^{''.join(map(_in_class, letters))}]{_ANY}*")
    ways += [f"{re.escape(letter)}({_others(tree[letter])})" for letter in letters]
    return "|".join(ways)


def _in_class(letter: str) -> str:
    return "\\" + letter if letter in "\\]^-[&~" else letter
