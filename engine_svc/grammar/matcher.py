"""The constraint of one sequence: reasoning first, then what the grammar allows, then the end."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher

from engine_svc.constraint import ConstraintKind, Mask, Thinking
from engine_svc.grammar.follower import Fault, Follower
from engine_svc.grammar.reasoning import Constrained, Free, ThinkingGate, Undecided
from engine_svc.grammar.short_numbers import ShortNumbers
from engine_svc.grammar.vocabulary import GrammarVocabulary
from svclib.errors import InvalidRequest


class Room:
    """Reserved memory, released when nothing refers to this any more."""


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """See ``engine_svc.constraint.Grammar``. ``start`` is a matcher that has read nothing; ``numbers`` is another one
    for long numbers, if there may be any (``numbers.py``)."""

    vocabulary: GrammarVocabulary
    kind: ConstraintKind
    start: LLMatcher
    numbers: LLMatcher | None = None
    thinking: Thinking | None = None
    room: Room | None = None

    def matcher(self, eos_token_ids: Collection[int], end_token_ids: Collection[int]) -> SequenceMatcher:
        return SequenceMatcher(self, eos_token_ids, end_token_ids)


class SequenceMatcher:
    """See ``engine_svc.constraint.Matcher``. Reads only new tokens, so outputs must grow."""

    def __init__(
        self, grammar: CompiledGrammar, eos_token_ids: Collection[int], end_token_ids: Collection[int]
    ) -> None:
        self._vocabulary = grammar.vocabulary
        self._kind = grammar.kind
        self._parser = Follower(grammar.start)
        self._numbers = None if grammar.numbers is None else ShortNumbers(grammar.vocabulary, grammar.numbers)
        self._num_read = 0
        thinking = grammar.thinking
        self._gate = ThinkingGate(thinking, grammar.vocabulary.tokens.spelled) if thinking is not None else None
        self._eos = np.array(sorted(eos_token_ids), np.int64)
        self._ends = np.array(sorted(end_token_ids), np.int64)

    def allowed(self, output: SequenceOf[int], *, may_end: bool) -> Mask | None:
        match self._position(output):
            case Free():
                return self._anything_but_the_end(may_end)
            case Undecided(next_token_id):
                mask = self._mask_without_thinking(output, may_end)
                mask[next_token_id] = True
                return mask
            case Constrained(start, rest):
                self._read(output, start, rest)
                return self._grammar_mask(self._parser, may_end)

    def is_over(self, output: SequenceOf[int]) -> bool:
        position = self._position(output)
        if not isinstance(position, Constrained):
            return False
        self._read(output, position.start, position.rest)
        return self._parser.is_over()

    def _position(self, output: SequenceOf[int]) -> Constrained | Free | Undecided:
        return Constrained(0) if self._gate is None else self._gate.position(output)

    def _read(self, output: SequenceOf[int], start: int, rest: bytes) -> None:
        """Let the parser read the tokens that it has not read yet."""
        if self._num_read < start:
            self._num_read = start
            self._consume(self._vocabulary.compiled.greedy_tokenize(rest.decode("utf-8", "replace")))
        new = list(output[self._num_read :])
        self._num_read = len(output)
        self._consume(new)

    def _consume(self, token_ids: list[int]) -> None:
        try:
            self._parser.read(token_ids)
        except Fault as fault:
            raise self._refused(fault) from None

    def _anything_but_the_end(self, may_end: bool) -> Mask:
        """During reasoning, when an end would leave the constraint unfulfilled: only the request's stop tokens may
        end."""
        mask = np.ones(self._vocabulary.size, np.bool_)
        mask[self._eos] = False
        if not may_end:
            mask[self._ends] = False
        return mask

    def _mask_without_thinking(self, output: SequenceOf[int], may_end: bool) -> Mask:
        """Tokens after a partial opening tag, for an output without reasoning; none if the constraint forbids it."""
        parser = self._parser.ahead(output)
        mask = self._grammar_mask(parser, may_end) if parser is not None else None
        return np.zeros(self._vocabulary.size, np.bool_) if mask is None else mask

    def _grammar_mask(self, parser: Follower, may_end: bool) -> Mask | None:
        if parser.is_over():
            return None
        try:
            mask = self._vocabulary.mask(parser.mask())
        except Fault as fault:
            raise self._refused(fault) from None
        accepting = parser.is_accepting()
        if self._numbers is not None and parser is self._parser:
            mask = self._numbers.shorten(mask, parser.token_ids, may_be_empty=accepting)
        if accepting and may_end:
            mask[self._ends] = True
        elif not may_end:
            mask = self._without_ends(mask)
        if mask.any():
            return mask
        if accepting:
            return None
        raise InvalidRequest("constraint dead end: no token is allowed", param=self._kind)

    def _without_ends(self, mask: Mask) -> Mask:
        """The mask without tokens that end the sequence, though the constraint allows them as text."""
        longer = mask.copy()
        longer[self._ends] = False
        return longer if longer.any() else mask

    def _refused(self, fault: Fault) -> InvalidRequest:
        return InvalidRequest(f"the constraint cannot be followed any further: {fault}", param=self._kind)
