"""From a constraint to the text of a grammar for llguidance, in its Lark dialect.

Format: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from llguidance import regex_to_lark

from engine_svc.grammar.json_schema import parse_schema
from engine_svc.grammar.lark import lark_of
from engine_svc.grammar.patterns import check_pattern
from engine_svc.grammar.references import check_references
from engine_svc.grammar.spelling import embedded
from engine_svc.request import Constraint
from svclib.errors import InvalidRequest

MAX_TEXT_BYTES: Final = 256 * 1024
MAX_CHOICES: Final = 10_000

_OPTIONS: Final = '\n%llguidance {"no_forcing": true}\n'
"""The model chooses its tokens, whatever text is forced: no tokenizer has to be asked how it would spell it."""


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
            return "start: %json " + _embedded(constraint.text)
        case "regex":
            check_pattern(constraint.text)
            return f"start: /{regex_to_lark(constraint.text)}/"
        case "choice":
            return "start: " + " | ".join(_literals(constraint.choices))
        case "grammar":
            return lark_of(constraint.text, _embedded)


def _literals(choices: tuple[str, ...]) -> Iterator[str]:
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise ValueError(f"there must be 1 to {MAX_CHOICES} choices, not {len(choices)}")
    for choice in choices:
        if not choice:
            raise ValueError("a choice is empty")
        yield json.dumps(choice, ensure_ascii=False)


def _embedded(text: str) -> str:
    schema = parse_schema(text)
    check_references(schema)
    return embedded(schema)
