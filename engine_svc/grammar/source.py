"""From a constraint to the text of a grammar for llguidance, in its Lark dialect.

Format: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark

from engine_svc.grammar.json_schema import Schema, parse_schema
from engine_svc.grammar.patterns import check_pattern
from engine_svc.grammar.references import check_references
from engine_svc.grammar.spelling import embedded
from engine_svc.request import Constraint
from svclib.errors import InvalidRequest

MAX_TEXT_BYTES: Final = 256 * 1024
MAX_CHOICES: Final = 10_000

_OPTIONS: Final = '\n%llguidance {"no_forcing": true}\n'
"""The model chooses its tokens, whatever text is forced: no tokenizer has to be asked how it would spell it."""

_LARK_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|#[^\n]*|/(?:[^/\\\n]|\\.)+/|%json\s*(?=\{)')
"""Whatever could hold the letters ``%json`` without meaning it, and ``%json`` itself."""


def grammar_of(constraint: Constraint) -> str:
    """Raises ``InvalidRequest`` for what is wrong in a way that needs no compiler to see."""
    size = len(constraint.text.encode()) + sum(len(choice.encode()) for choice in constraint.choices)
    if size > MAX_TEXT_BYTES:
        raise InvalidRequest(f"a constraint can have {MAX_TEXT_BYTES} bytes at most", param=constraint.kind)
    try:
        return _lark(constraint) + _OPTIONS
    except ValueError as error:
        raise InvalidRequest(str(error), param=constraint.kind) from None


def _lark(constraint: Constraint) -> str:
    match constraint.kind:
        case "json_object":
            return "start: %json " + embedded({"type": "object"})
        case "json_schema":
            return "start: %json " + embedded(_checked(constraint.text))
        case "regex":
            check_pattern(constraint.text)
            return f"start: /{regex_to_lark(constraint.text)}/"
        case "choice":
            return "start: " + " | ".join(_literals(constraint.choices))
        case "grammar":
            return "".join(_with_checked_schemas(_to_lark(constraint.text)))


def _literals(choices: tuple[str, ...]) -> Iterator[str]:
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise ValueError(f"there must be 1 to {MAX_CHOICES} choices, not {len(choices)}")
    for choice in choices:
        if not choice:
            raise ValueError("a choice is empty")
        yield json.dumps(choice, ensure_ascii=False)


def _to_lark(text: str) -> str:
    """The grammar itself if it is Lark, else what llguidance makes of GBNF, the format of llama.cpp."""
    try:
        return any_to_lark(text)
    except Exception as error:  # a bare Exception is what the converter raises
        raise ValueError(f"neither a Lark grammar with a `start` rule nor GBNF: {error}") from None


def schema_param(grammar: str, line: int) -> str:
    """The param of a fault in the schema that stands in a line of a grammar, counted from 1."""
    before = "\n".join(grammar.split("\n")[:line])
    return _schema_param(sum(found[0].startswith("%json") for found in _LARK_TOKEN.finditer(before)) - 1)


def _schema_param(number: int) -> str:
    return f"grammar.json[{number}]"


def _with_checked_schemas(lark: str) -> Iterator[str]:
    """The pieces of a grammar, every schema in it treated as if it had come alone. Raises as ``grammar_of``."""
    at = num_schemas = 0
    while found := _LARK_TOKEN.search(lark, at):
        yield lark[at : found.end()]
        at = found.end()
        if found[0].startswith("%json"):
            schema, length = _decode(lark[at:])
            try:
                yield embedded(_checked(schema))
            except ValueError as error:
                raise InvalidRequest(str(error), param=_schema_param(num_schemas)) from None
            at += length
            num_schemas += 1
    yield lark[at:]


def _checked(text: str) -> Schema:
    schema = parse_schema(text)
    check_references(schema)
    return schema


def _decode(text: str) -> tuple[str, int]:
    """The JSON object that a text begins with, and its length."""
    try:
        _, length = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        raise ValueError("%json is not followed by a JSON object") from None
    return text[:length], length
