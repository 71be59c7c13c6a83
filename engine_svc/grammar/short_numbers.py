"""Keeps the numbers of one output short, with the grammar of ``numbers.py``."""

from __future__ import annotations

import re
from collections.abc import Sequence as SequenceOf
from typing import Final

from llguidance import LLMatcher

from engine_svc.constraint import Mask
from engine_svc.grammar.follower import Fault, Follower
from engine_svc.grammar.vocabulary import GrammarVocabulary

_NUMERIC: Final = b"0123456789.eE+-"
_LONG: Final = 8
"""Bytes of a number after which its length is checked; usual tokens have at most as many digits."""
_EXPONENT: Final = re.compile(rb"[0-9][eE]")


class ShortNumbers:
    """``start`` is a matcher that has read nothing. Outputs must grow."""

    def __init__(self, vocabulary: GrammarVocabulary, start: LLMatcher) -> None:
        self._vocabulary = vocabulary
        self._parser: Follower | None = Follower(start)

    def shorten(self, mask: Mask, output: SequenceOf[int], *, may_be_empty: bool) -> Mask:
        """The mask without the tokens that would make a number too long; unchanged if that leaves nothing."""
        if self._parser is None or not self._is_in_long_number(output):
            return mask
        try:
            self._parser.read(output[len(self._parser.token_ids) :])
            shorter: Mask = mask & self._vocabulary.mask(self._parser.mask())
        except Fault:  # The constraint itself wants a longer number.
            self._parser = None
            return mask
        return shorter if may_be_empty or shorter.any() else mask

    def _is_in_long_number(self, output: SequenceOf[int]) -> bool:
        """Whether the output ends in what may be a long number, or one with an exponent."""
        run = b""
        for token_id in reversed(output):
            token = self._vocabulary.tokens.spelled[token_id]
            rest = token.rstrip(_NUMERIC)
            run = token[len(rest) :] + run
            if rest or len(run) >= _LONG:
                break
        return len(run) >= _LONG or _EXPONENT.search(run) is not None
