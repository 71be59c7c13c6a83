"""The text of a client's grammar: converted from GBNF, limited in size, its schemas converted as in ``json_schema``.

Format: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md. Scanners are linear: a grammar may be long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

from llguidance.gbnf_to_lark import gbnf_to_lark

from svclib.errors import InvalidRequest

MAX_RULES: Final = 500
"""llguidance inlines terminals recursively."""
MAX_GBNF: Final = 16 * 1024
"""Characters. Converting that many takes a second."""

_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|#[^\n]*|/(?:[^/\\\n]|\\.)*/?|%json\s*(?=\{)')
"""Strings, comments and patterns, closed or not, which may contain a colon or ``%json``; and ``%json`` itself."""
_START_RULE: Final = re.compile(r"%llguidance\b|start\s*:")


def lark_of(text: str, convert: Callable[[str], str], json_rule: str = "%json") -> str:
    """The grammar with every schema after ``%json`` converted. Raises ``ValueError`` for faults found without
    compiling.

    ``json_rule`` replaces ``%json``. A ``ValueError`` of ``convert`` becomes ``InvalidRequest`` with the number of the
    schema in ``param``.
    """
    lark = text if _is_lark(text) else _from_gbnf(text)
    return "".join(_pieces(lark, convert, json_rule))


def schema_param(grammar: str, line: int) -> str:
    """The param of a fault in the schema in a line of a grammar; lines count from 1."""
    before = "\n".join(grammar.split("\n")[:line])
    return _schema_param(sum(found[0].startswith("%json") for found in _TOKEN.finditer(before)) - 1)


def _schema_param(number: int) -> str:
    return f"grammar.json[{number}]"


def _is_lark(text: str) -> bool:
    return any(_START_RULE.match(line.lstrip()) for line in text.splitlines())


def _from_gbnf(text: str) -> str:
    """Converts GBNF, the format of llama.cpp, by llguidance."""
    if len(text) > MAX_GBNF:
        raise ValueError(f"a grammar without a `start` rule is GBNF, and can have {MAX_GBNF} characters at most")
    try:
        return gbnf_to_lark(text)
    except Exception as error:  # The converter raises bare exceptions.
        raise ValueError(f"neither a Lark grammar with a `start` rule nor GBNF: {str(error)[:200]}") from None


def _pieces(lark: str, convert: Callable[[str], str], json_rule: str) -> Iterator[str]:
    at = num_schemas = num_rules = 0
    while found := _TOKEN.search(lark, at):
        num_rules += lark.count(":", at, found.start())
        is_schema = found[0].startswith("%json")
        yield lark[at : found.start()]
        yield found[0].replace("%json", json_rule, 1) if is_schema else found[0]
        at = found.end()
        if is_schema:
            schema, length = _decode(lark, at)
            yield _converted(schema, num_schemas, convert)
            at += length
            num_schemas += 1
    if num_rules + lark.count(":", at) > MAX_RULES:
        raise ValueError(f"a grammar can have {MAX_RULES} rules at most")
    yield lark[at:]


def _converted(schema: str, number: int, convert: Callable[[str], str]) -> str:
    try:
        return convert(schema)
    except ValueError as error:
        raise InvalidRequest(str(error), param=_schema_param(number)) from None


def _decode(text: str, at: int) -> tuple[str, int]:
    """The JSON object at a position, and its length."""
    try:
        _, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        raise ValueError("%json is not followed by a JSON object") from None
    return text[at:end], end - at
