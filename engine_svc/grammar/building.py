"""Compiles the text of a grammar with llguidance, within llguidance's own limits.

These limits count work, not time, so the outcome for a text is the same everywhere. They bound every mask, but not the
compilation of a schema, which is therefore tried in a child process first (``examiner.py``).
"""

from __future__ import annotations

import re
from typing import Final

from llguidance import LLMatcher, LLParserLimits

from engine_svc.constraint import ConstraintKind
from engine_svc.grammar.lark import schema_param
from engine_svc.grammar.vocabulary import GrammarVocabulary
from svclib.errors import InvalidRequest

MAX_LEXER_STATES: Final = 30_000
"""In one matcher, 0.25 kB each. A matcher that has used them up is replaced (``follower.py``), so they limit the cost
of one mask and the memory of a matcher, not the length of an output."""
MAX_ITEMS: Final = 5_000
"""Parser items at one position; an optional property takes four."""
MAX_MASK_ITEMS: Final = 20_000
"""Parser items for one mask: 40 ms in the worst grammars, a millisecond in others."""

_MAX_MESSAGE: Final = 400
_EXCERPT: Final = re.compile(r"\n +\d+ \| ")
_PLACE: Final = re.compile(r"^(at )?\d+\(\d+\): ")
_SCHEMA_FAULT: Final = re.compile(r"at (\d+)\(\d+\): failed to compile JSON schema: ")


def build(vocabulary: GrammarVocabulary, kind: ConstraintKind, grammar: str) -> LLMatcher:
    """A matcher that has read nothing and has its first mask. Raises ``InvalidRequest`` with the ``kind`` as param."""
    parser = LLMatcher(vocabulary.compiled, grammar, limits=_limits(), log_level=0)
    if parser.is_error():
        raise _fault(kind, grammar, parser.get_error())
    beginnings = vocabulary.mask(parser.compute_bitmask())
    if parser.is_error() or not beginnings.any():
        raise InvalidRequest("no text matches the constraint", param=kind)
    return parser


def _limits() -> LLParserLimits:
    return LLParserLimits(
        max_items_in_row=MAX_ITEMS,
        max_lexer_states=MAX_LEXER_STATES,
        step_max_items=MAX_MASK_ITEMS,
        verbose_errors=False,
    )


def _fault(kind: ConstraintKind, grammar: str, message: str) -> InvalidRequest:
    """llguidance's message on one line, without an excerpt, and without a position in text of ours."""
    text = _EXCERPT.split(message, maxsplit=1)[0]
    param: str = kind
    if found := _SCHEMA_FAULT.match(text):
        text = text[found.end() :]
        param = schema_param(grammar, int(found[1])) if kind == "grammar" else param
    elif kind != "grammar":
        text = _PLACE.sub("", text)
    if "oneOf constraints" in text:  # its advice is an option that treats oneOf as anyOf
        text = "oneOf is not supported unless at most one branch can match; use anyOf"
    return InvalidRequest(" ".join(text.split())[:_MAX_MESSAGE], param=param)
