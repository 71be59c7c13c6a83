"""From the text of a grammar to a matcher by llguidance, within its own limits.

All of these limits count work, not time, so the same text has the same outcome everywhere. They bound every mask; they
do not bound the compilation of a schema, which therefore is tried in a child process first (``examiner.py``).
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
"""Of a quarter of a kB each, in one matcher. One that has used them up is made anew (``follower.py``), so they limit
what one mask takes and what a matcher remembers, not how long a text can be."""
MAX_ITEMS: Final = 5_000
"""Of the parser at one place; an optional property takes four."""
MAX_MASK_ITEMS: Final = 20_000
"""Of the parser for one mask: 40 ms in the worst grammars, a millisecond in others."""

_MAX_MESSAGE: Final = 400
_EXCERPT: Final = re.compile(r"\n +\d+ \| ")
_PLACE: Final = re.compile(r"^(at )?\d+\(\d+\): ")
_SCHEMA_FAULT: Final = re.compile(r"at (\d+)\(\d+\): failed to compile JSON schema: ")


def build(vocabulary: GrammarVocabulary, kind: ConstraintKind, grammar: str) -> LLMatcher:
    """A matcher that has read nothing and has its first mask. Raises ``InvalidRequest`` naming the ``kind``."""
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
    """llguidance's message on one line, without an excerpt, and without a place that the client has not written."""
    text = _EXCERPT.split(message, maxsplit=1)[0]
    param: str = kind
    if found := _SCHEMA_FAULT.match(text):
        text = text[found.end() :]
        param = schema_param(grammar, int(found[1])) if kind == "grammar" else param
    elif kind != "grammar":
        text = _PLACE.sub("", text)
    if "oneOf constraints" in text:  # the rest of it advises an option that makes no difference between oneOf and anyOf
        text = "oneOf is not supported unless at most one branch can match; use anyOf"
    return InvalidRequest(" ".join(text.split())[:_MAX_MESSAGE], param=param)
