"""Keeps the numbers of one output short, by the grammar of ``numbers.py``."""

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
"""Bytes of a number after which its length is looked at; no usual token holds more than as many digits again."""
_EXPONENT: Final = re.compile(rb"[0-9][eE]")


class ShortNumbers:
    """``start`` is a matcher that has read nothing. Outputs must grow."""

    def __init__(self, vocabulary: GrammarVocabulary, start: LLMatcher) -> None:
        self._vocabulary = vocabulary
        self._parser: Follower | None = Follower(start)

    def shorten(self, mask: Mask, output: SequenceOf[int], *, may_be_empty: bool) -> Mask:
        """The mask without the tokens that would make a number too long; as it is if that leaves nothing."""
        if self._parser is None or not self._is_in_a_run(output):
            return mask
        try:
            self._parser.read(output[len(self._parser.token_ids) :])
            shorter: Mask = mask & self._vocabulary.mask(self._parser.mask())
        except Fault:  # longer numbers are no fault of the request
            self._parser = None
            return mask
        return shorter if may_be_empty or shorter.any() else mask

    def _is_in_a_run(self, output: SequenceOf[int]) -> bool:
        """Whether the last bytes could be a number that is getting long, or has an exponent."""
        run = b""
        for token_id in reversed(output):
            token = self._vocabulary.tokens.spelled[token_id]
            rest = token.rstrip(_NUMERIC)
            run = token[len(rest) :] + run
            if rest or len(run) >= _LONG:
                break
        return len(run) >= _LONG or _EXPONENT.search(run) is not None
