"""Compiles constraints, outside the step loop and within limits of time and memory.

A child process tries each constraint first (``examiner.py``), then this process compiles it without Python's lock. Most
take milliseconds. A trial that takes longer yields the CPU to newer ones more and more (``limits.NICENESS``), and is
stopped when it is beyond its share and others wait (``turns.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from engine_svc.constraint import Constraint, Thinking
from engine_svc.grammar.examiner import Stopped, TimedOut, Trial
from engine_svc.grammar.limits import DEFAULT_LIMITS, MAX_TRIALS, MAX_WAITING, SHARE_SECONDS, CompileLimits
from engine_svc.grammar.matcher import CompiledGrammar
from engine_svc.grammar.reasoning import closing_of
from engine_svc.grammar.shared_work import SharedWork
from engine_svc.grammar.source import check_size
from engine_svc.grammar.stages import CompileStages
from engine_svc.grammar.turns import Turns
from engine_svc.grammar.vocabulary import GrammarVocabulary
from engine_svc.request import Request
from modelfiles.vocabulary_hash import UNKNOWN
from svclib.errors import InvalidRequest, Overloaded, Unsupported

_RETRY_AFTER: Final = 5.0


class GrammarCompiler:
    """``observe`` is called with the seconds that each compilation took."""

    def __init__(
        self,
        vocabulary: GrammarVocabulary | None,
        observe: Callable[[float], None] = lambda _: None,
        limits: CompileLimits = DEFAULT_LIMITS,
    ) -> None:
        self.vocabulary_hash = UNKNOWN if vocabulary is None else vocabulary.tokens.vocabulary_hash
        self._limits = limits
        self._stages = None if vocabulary is None else CompileStages(vocabulary, observe, limits)
        self._num_attaching = 0
        self._turns = Turns(MAX_TRIALS, SHARE_SECONDS)
        self._shared: SharedWork[Constraint, CompiledGrammar] = SharedWork()

    @property
    def is_supported(self) -> bool:
        """Whether anything can be compiled: the vocabulary is known."""
        return self._stages is not None

    def start(self) -> None:
        """Start the server of the child processes before it is needed, without waiting for it."""
        if self._stages is not None:
            self._stages.start()

    async def attach(self, request: Request) -> Request:
        """The request with its grammar compiled, if it has a constraint. Takes at most ``limits.wall_seconds``.

        Raises ``InvalidRequest`` as ``compile`` does, and for thinking whose end has no text. Raises ``Overloaded``
        when too many constraints wait, or others left too little time for this one.
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

        The param of a fault in a schema within a grammar is like ``grammar.json[0]``.
        """
        stages = self._checked(constraint)
        if (known := stages.known(constraint)) is not None:
            return known
        try:
            return stages.build(constraint, stages.examine(constraint, Trial()).result()).result()
        except TimedOut:
            raise self._too_slow(constraint) from None

    def close(self) -> None:
        """Compile no more. A compilation under way does not keep the process from ending."""
        if self._stages is not None:
            self._stages.close()

    def _checked(self, constraint: Constraint) -> CompileStages:
        if self._stages is None:
            message = "constraints need the tokenizer of the model, and there is none beside its weights"
            raise Unsupported(message, param=constraint.kind)
        check_size(constraint)
        return self._stages

    async def _compiled(self, constraint: Constraint) -> CompiledGrammar:
        stages = self._checked(constraint)
        if (known := stages.known(constraint)) is not None:
            return known
        return await self._shared.result(constraint, lambda: self._compile_in_time(stages, constraint))

    async def _compile_in_time(self, stages: CompileStages, constraint: Constraint) -> CompiledGrammar:
        trial, seconds = Trial(), self._limits.wall_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._compile_in_turn(stages, constraint, trial)
        except (TimeoutError, TimedOut):
            if trial.seconds() >= SHARE_SECONDS:
                raise self._too_slow(constraint) from None
            waited = f"the constraint waited for others and was not compiled within {seconds:g} seconds"
            raise Overloaded(waited, retry_after=_RETRY_AFTER) from None
        except Stopped:
            ran = f"compiling the constraint was stopped after {SHARE_SECONDS:g} seconds because others were waiting"
            raise Overloaded(ran, retry_after=_RETRY_AFTER) from None

    async def _compile_in_turn(self, stages: CompileStages, constraint: Constraint, trial: Trial) -> CompiledGrammar:
        async with self._turns.turn(trial.seconds, trial.stop):
            try:
                tried = await asyncio.wrap_future(stages.examine(constraint, trial))
                return await asyncio.wrap_future(stages.build(constraint, tried))
            finally:
                trial.stop()  # When it is not over, the caller has left or its time is.

    def _too_slow(self, constraint: Constraint) -> InvalidRequest:
        message = f"the constraint is too complex: it takes more than {self._limits.wall_seconds:g} seconds to compile"
        return InvalidRequest(message, param=constraint.kind)


def _after_reasoning(thinking: Thinking | None, grammar: CompiledGrammar) -> CompiledGrammar:
    """The grammar of the output after reasoning ends. Raises ``InvalidRequest`` if no text can end it."""
    if thinking is not None and not closing_of(thinking, grammar.vocabulary.tokens.spelled):
        message = "these tokens have no text, so the end of reasoning cannot be found"
        raise InvalidRequest(message, param="reasoning_end_token_ids")
    return replace(grammar, thinking=thinking)
