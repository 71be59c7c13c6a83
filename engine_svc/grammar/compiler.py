"""Compiles constraints, outside the step loop and within limits of time and memory.

A child process tries each first (``examiner.py``), and then this one compiles it without Python's lock. Most take
milliseconds, so there are two ways: what takes longer than a quarter of a second makes room for the others, and starts
again where it has more time and waits for its like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Final

from engine_svc.constraint import Constraint, Thinking
from engine_svc.grammar.building import build
from engine_svc.grammar.examiner import SLOW_NICENESS, Examiner, ProbePolicy, TooMuch
from engine_svc.grammar.limits import DEFAULT_LIMITS, CompileLimits
from engine_svc.grammar.matcher import CompiledGrammar
from engine_svc.grammar.panics import panics_are_errors
from engine_svc.grammar.reasoning import closing_of
from engine_svc.grammar.source import check_size
from engine_svc.grammar.store import GrammarStore
from engine_svc.grammar.threads import DeepThreads
from engine_svc.grammar.vocabulary import GrammarVocabulary
from engine_svc.request import Request
from modelfiles.vocabulary_hash import UNKNOWN
from svclib.errors import InvalidRequest, Overloaded, Unsupported

MAX_WAITING: Final = 256
"""Constraints on their way, those that are compiled among them."""
MAX_SLOW: Final = 4
"""Those among them that take long."""
SLOW_AT_ONCE: Final = 2
QUICK: Final = ProbePolicy(seconds=0.75, cpu_seconds=0.25)


class GrammarCompiler:
    """``observe`` is told the seconds that each compilation took."""

    def __init__(
        self,
        vocabulary: GrammarVocabulary | None,
        observe: Callable[[float], None] = lambda _: None,
        limits: CompileLimits = DEFAULT_LIMITS,
    ) -> None:
        self._work = None if vocabulary is None else _Work(vocabulary, observe, limits)
        self.vocabulary_hash = UNKNOWN if vocabulary is None else vocabulary.tokens.vocabulary_hash
        self._num_attaching = 0
        self._num_slow = 0

    @property
    def is_supported(self) -> bool:
        """Whether anything can be compiled: the vocabulary is known."""
        return self._work is not None

    def start(self) -> None:
        """Start the child processes before they are needed, without waiting for them."""
        if self._work is not None:
            self._work.start()

    async def attach(self, request: Request) -> Request:
        """The request with its grammar compiled, if it has a constraint.

        Raises ``InvalidRequest`` as ``compile`` does, and for thinking that nothing could close. Raises ``Overloaded``
        when too many are waiting already.
        """
        constraint = request.sampling_params.constraint
        if constraint is None:
            return request
        if self._num_attaching >= MAX_WAITING:
            raise Overloaded("too many constraints are waiting to be compiled", retry_after=1.0)
        self._num_attaching += 1
        try:
            grammar = await self._compiled(constraint)
        finally:
            self._num_attaching -= 1
        return replace(request, grammar=_after_reasoning(request.thinking, grammar))

    def compile(self, constraint: Constraint) -> CompiledGrammar:
        """Raises ``InvalidRequest`` naming the constraint's kind, if it is wrong, too large or not supported.

        A fault in a schema within a grammar is named as ``grammar.json[0]``.
        """
        work = self._checked(constraint)
        try:
            return work.quickly(constraint).result()
        except TooMuch:
            return work.slowly(constraint).result()

    def close(self) -> None:
        """Compile no more. What is being compiled holds nobody up: the process can end."""
        if self._work is not None:
            self._work.close()

    def _checked(self, constraint: Constraint) -> _Work:
        if self._work is None:
            raise Unsupported("this model has no tokenizer beside it, which constraints need", param=constraint.kind)
        check_size(constraint)
        return self._work

    async def _compiled(self, constraint: Constraint) -> CompiledGrammar:
        work = self._checked(constraint)
        if (known := work.store.get(constraint)) is not None:
            return known
        try:
            return await asyncio.wrap_future(work.quickly(constraint))
        except TooMuch:
            pass
        if self._num_slow >= MAX_SLOW:
            raise Overloaded("constraints that take long are being compiled already", retry_after=5.0)
        self._num_slow += 1
        try:
            return await asyncio.wrap_future(work.slowly(constraint))
        finally:
            self._num_slow -= 1


class _Work:
    """What compiling takes: threads for both ways, child processes, memory."""

    def __init__(self, vocabulary: GrammarVocabulary, observe: Callable[[float], None], limits: CompileLimits) -> None:
        self.store = GrammarStore(limits.memory_bytes)
        self._vocabulary = vocabulary
        self._observe = observe
        self._limits = limits
        self._examiner = Examiner(vocabulary.tokens, memory_bytes=limits.memory_bytes)
        self._quick = DeepThreads(1, "grammar")
        self._slow = DeepThreads(SLOW_AT_ONCE, "slow-grammar", niceness=SLOW_NICENESS)

    def start(self) -> None:
        self._quick.submit(self._examiner.start)

    def quickly(self, constraint: Constraint) -> Future[CompiledGrammar]:
        """Raises ``TooMuch`` for what is not quick."""
        return self._quick.submit(partial(self._compile, constraint, QUICK))

    def slowly(self, constraint: Constraint) -> Future[CompiledGrammar]:
        return self._slow.submit(partial(self._compile_slowly, constraint))

    def close(self) -> None:
        self._quick.close()
        self._slow.close()
        self._examiner.close()

    def _compile_slowly(self, constraint: Constraint) -> CompiledGrammar:
        try:
            return self._compile(constraint, ProbePolicy(self._limits.seconds, self._limits.seconds, SLOW_NICENESS))
        except TooMuch:
            most = f"{self._limits.seconds:g} seconds or {self._limits.memory_bytes // 2**20} MiB of memory"
            raise InvalidRequest(
                f"the constraint is too complex: it takes more than {most}", param=constraint.kind
            ) from None

    @panics_are_errors()
    def _compile(self, constraint: Constraint, patience: ProbePolicy) -> CompiledGrammar:
        if (known := self.store.get(constraint)) is not None:
            return known
        started = perf_counter()
        approved = self._examiner.examine(constraint, patience)
        room = self.store.room(constraint, approved.num_bytes)
        parser = build(self._vocabulary, constraint.kind, approved.grammar)
        numbers = build(self._vocabulary, constraint.kind, approved.numbers) if approved.numbers else None
        grammar = CompiledGrammar(self._vocabulary, constraint.kind, parser, numbers, room=room)
        self.store.keep(constraint, grammar)
        self._observe(perf_counter() - started)
        return grammar


def _after_reasoning(thinking: Thinking | None, grammar: CompiledGrammar) -> CompiledGrammar:
    """The grammar of what comes after reasoning ends. Raises ``InvalidRequest`` if nothing could close it."""
    if thinking is not None and not closing_of(thinking, grammar.vocabulary.tokens.spelled):
        raise InvalidRequest("these tokens have no text that could be found", param="reasoning_end_token_ids")
    return replace(grammar, thinking=thinking)
