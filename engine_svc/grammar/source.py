"""Converts a constraint to grammars in llguidance's Lark dialect.

Format: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from llguidance import regex_to_lark

from engine_svc.constraint import Constraint
from engine_svc.grammar.closing import closed
from engine_svc.grammar.json_schema import parse_schema
from engine_svc.grammar.lark import lark_of
from engine_svc.grammar.numbers import JSON_RULES, JSON_VALUE, may_have_long_numbers
from engine_svc.grammar.patterns import check_pattern
from engine_svc.grammar.references import check_references
from engine_svc.grammar.spelling import embedded
from svclib.errors import InvalidRequest

MAX_TEXT_BYTES: Final = 256 * 1024
MAX_CHOICES: Final = 10_000

_OPTIONS: Final = '\n%llguidance {"no_forcing": true}\n'
"""The model chooses the tokens of forced text too, so no tokenizer is needed to spell it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The grammar of a constraint, and the grammar of its numbers (``numbers.py``), empty if it needs none."""

    grammar: str
    numbers: str = ""


def check_size(constraint: Constraint) -> None:
    """Raises ``InvalidRequest`` for a constraint that is too large."""
    size = len(constraint.text.encode()) + sum(len(choice.encode()) for choice in constraint.choices)
    if size > MAX_TEXT_BYTES:
        raise InvalidRequest(f"a constraint can have {MAX_TEXT_BYTES} bytes at most, not {size}", param=constraint.kind)


def source_of(constraint: Constraint) -> Source:
    """Raises ``InvalidRequest`` for faults that are found without compiling."""
    schemas = _Schemas()
    try:
        grammar = _lark(constraint, schemas)
    except ValueError as error:
        raise InvalidRequest(str(error), param=constraint.kind) from None
    return Source(grammar + _OPTIONS, schemas.numbers_of(constraint))


@dataclass(slots=True)
class _Schemas:
    """Converts the schemas of one constraint, and records whether any may have long numbers."""

    have_long_numbers: bool = field(init=False, default=False)

    def convert(self, text: str) -> str:
        """The text that follows ``%json``."""
        schema = parse_schema(text)
        check_references(schema)
        schema = closed(schema)
        self.have_long_numbers = self.have_long_numbers or may_have_long_numbers(schema)
        return embedded(schema)

    def numbers_of(self, constraint: Constraint) -> str:
        if not self.have_long_numbers:
            return ""
        if constraint.kind != "grammar":
            return f"start: {JSON_VALUE}\n{JSON_RULES}{_OPTIONS}"
        return f"{lark_of(constraint.text, lambda _: '', json_rule=JSON_VALUE)}\n{JSON_RULES}{_OPTIONS}"


def _lark(constraint: Constraint, schemas: _Schemas) -> str:
    match constraint.kind:
        case "json_object":
            return "start: %json " + schemas.convert('{"type": "object"}')
        case "json_schema":
            return "start: %json " + schemas.convert(constraint.text)
        case "regex":
            check_pattern(constraint.text)
            return f"start: /{regex_to_lark(constraint.text)}/"
        case "choice":
            return "start: " + " | ".join(_literals(constraint.choices))
        case "grammar":
            return lark_of(constraint.text, schemas.convert)


def _literals(choices: tuple[str, ...]) -> Iterator[str]:
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise ValueError(f"there must be 1 to {MAX_CHOICES} choices, not {len(choices)}")
    for choice in choices:
        if not choice:
            raise ValueError("a choice is empty; each must have text")
        yield json.dumps(choice, ensure_ascii=False)
