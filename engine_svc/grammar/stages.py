"""The two stages of a compilation: the trial in a child process, then the building of the grammar in this one.

Both run in threads of their own, within limits of time and memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from engine_svc.constraint import Constraint
from engine_svc.grammar.building import build
from engine_svc.grammar.examiner import Approved, Examiner, TooMuch, Trial, TrialLimits
from engine_svc.grammar.limits import MAX_TRIALS, QUICK_SECONDS, SLOW_NICENESS, SLOW_SECONDS, CompileLimits
from engine_svc.grammar.matcher import CompiledGrammar
from engine_svc.grammar.panics import panics_are_errors
from engine_svc.grammar.refused import RefusedConstraints
from engine_svc.grammar.store import GrammarStore
from engine_svc.grammar.threads import DeepThreads
from engine_svc.grammar.vocabulary import GrammarVocabulary
from svclib.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Tried:
    """A constraint that passed its trial, which took ``seconds`` on the clock."""

    approved: Approved
    seconds: float


class CompileStages:
    """Knows what was compiled and what was refused. ``observe`` is called with the seconds of each compilation.

    May be used from several threads.
    """

    def __init__(self, vocabulary: GrammarVocabulary, observe: Callable[[float], None], limits: CompileLimits) -> None:
        self._store = GrammarStore(limits.memory_bytes)
        self._refused = RefusedConstraints()
        self._vocabulary = vocabulary
        self._observe = observe
        self._limits = limits
        self._examiner = Examiner(vocabulary.tokens, memory_bytes=limits.memory_bytes)
        self._trials = DeepThreads(MAX_TRIALS, "grammar-trial")
        self._quick = DeepThreads(1, "grammar")
        self._medium = DeepThreads(1, "medium-grammar")
        self._slow = DeepThreads(1, "slow-grammar", niceness=SLOW_NICENESS)

    def start(self) -> None:
        """Start the server of the child processes, without waiting for it."""
        self._trials.submit(self._examiner.start)

    def known(self, constraint: Constraint) -> CompiledGrammar | None:
        """What was compiled before. Raises ``InvalidRequest`` for what was refused as too complex before."""
        if constraint in self._refused:
            raise self._too_complex(constraint)
        return self._store.get(constraint)

    def examine(self, constraint: Constraint, trial: Trial) -> Future[Tried]:
        """The first stage. Raises as ``Examiner.examine`` does, but ``InvalidRequest`` for ``TooMuch``."""
        return self._trials.submit(partial(self._examine, constraint, trial))

    def build(self, constraint: Constraint, tried: Tried) -> Future[CompiledGrammar]:
        """The second stage. Raises as ``GrammarStore.room`` does, and ``Panic``."""
        return self._builders(tried.approved.cpu_seconds).submit(partial(self._build, constraint, tried))

    def close(self) -> None:
        for threads in (self._trials, self._quick, self._medium, self._slow):
            threads.close()
        self._examiner.close()

    def _examine(self, constraint: Constraint, trial: Trial) -> Tried:
        started_at = perf_counter()
        try:
            approved = self._examiner.examine(constraint, self._trial_limits, trial)
        except TooMuch:
            self._refused.add(constraint)
            raise self._too_complex(constraint) from None
        return Tried(approved, perf_counter() - started_at)

    def _builders(self, cpu_seconds: float) -> DeepThreads:
        """The threads for a constraint whose trial took so long, so that a usual schema waits for its like only."""
        if cpu_seconds <= QUICK_SECONDS:
            return self._quick
        return self._medium if cpu_seconds <= SLOW_SECONDS else self._slow

    @panics_are_errors()
    def _build(self, constraint: Constraint, tried: Tried) -> CompiledGrammar:
        started_at, approved = perf_counter(), tried.approved
        room = self._store.room(constraint, approved.num_bytes)
        parser = build(self._vocabulary, constraint.kind, approved.grammar)
        numbers = build(self._vocabulary, constraint.kind, approved.numbers) if approved.numbers else None
        grammar = CompiledGrammar(self._vocabulary, constraint.kind, parser, numbers, room=room)
        self._store.keep(constraint, grammar)
        self._observe(tried.seconds + perf_counter() - started_at)
        return grammar

    @property
    def _trial_limits(self) -> TrialLimits:
        return TrialLimits(seconds=self._limits.wall_seconds, cpu_seconds=self._limits.seconds)

    def _too_complex(self, constraint: Constraint) -> InvalidRequest:
        most = f"{self._limits.seconds:g} seconds of CPU time or {self._limits.memory_bytes // 2**20} MiB of memory"
        message = f"the constraint is too complex: it takes more than {most} to compile"
        return InvalidRequest(message, param=constraint.kind)
