"""The prompts of one call through the engine: validated, submitted, stepped until all have finished."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from functools import cached_property

from prometheus_client import CollectorRegistry

from detokenizer_svc.stop import check_stop_strings
from engine_svc.config import Settings
from engine_svc.constraint import Constraint, Grammar
from engine_svc.loading import build_engine, capacity_of, compile_limits_of, tokenizer_source
from engine_svc.metrics import EngineMetrics
from engine_svc.offline.answer import Answer, Output
from engine_svc.offline.interrupts import Interrupts
from engine_svc.offline.params import SamplingParams, message_of
from engine_svc.offline.progress import Progress
from engine_svc.offline.text import Text
from engine_svc.request import Request
from engine_svc.runners.interface import Runner
from engine_svc.validation import check_prompt, check_sampling
from svclib.errors import InvalidRequest


class Generator:
    """An engine without a thread of its own. Between two calls it has no requests."""

    def __init__(self, settings: Settings, runner: Runner, text: Text) -> None:
        self._info = runner.info
        self._text = text
        self._capacity = capacity_of(settings, runner.info)
        self._engine = build_engine(settings, runner, EngineMetrics(CollectorRegistry(), settings.model_name))
        self._eos_token_ids = frozenset(runner.info.eos_token_ids) | text.eos_token_ids
        self._settings = settings
        self._next_group_id = 0

    def generate(
        self,
        prompts: SequenceOf[SequenceOf[int]],
        params: SequenceOf[SamplingParams],
        *,
        show_progress: bool,
        continue_prompts: bool = False,
    ) -> list[Output]:
        """Outputs in the order of the prompts, each with its own parameters.

        With ``continue_prompts`` the texts continue those of the prompts, so none loses the space before its first
        word. Raises ``ValueError`` before anything is computed if one of them is invalid, ``RuntimeError`` if one
        fails, and what the SIGINT handler raises, between two steps.
        """
        pairs = zip(prompts, params, strict=True)
        requests = [self._request(number, prompt, each) for number, (prompt, each) in enumerate(pairs)]
        answers = [
            Answer(request, each.stop_strings, self._text, continues_prompt=continue_prompts)
            for request, each in zip(requests, params, strict=True)
        ]
        with Interrupts() as interrupts, Progress(len(requests), shown=show_progress and bool(requests)) as progress:
            running = {self._add(request): answer for request, answer in zip(requests, answers, strict=True)}
            try:
                while running:
                    interrupts.check()
                    self._step(running, progress)
            finally:
                for group_id in running:
                    self._engine.abort(group_id)
                self._engine.take_outputs()
        return [answer.result() for answer in answers]

    def _request(self, number: int, prompt: SequenceOf[int], params: SamplingParams) -> Request:
        try:
            rest = self._capacity.max_tokens(len(prompt), params.max_tokens)
            resolved = params.resolve(rest)
            check_prompt(tuple(prompt), self._info.vocab_size)
            check_sampling(resolved, self._info.vocab_size)
            check_stop_strings(params.stop_strings)
            grammar = None if resolved.constraint is None else self._compile(resolved.constraint)
        except InvalidRequest as error:
            raise ValueError(f"prompt {number}: {message_of(error)}") from None
        if min(prompt) < 0:
            raise ValueError(f"prompt {number}: token id {min(prompt)} is below 0")
        return Request(
            request_id=f"prompt {number}",
            prompt_token_ids=tuple(prompt),
            sampling_params=resolved,
            eos_token_ids=self._eos_token_ids,
            arrived_at=time.time(),
            open_ended=params.max_tokens is None,
            grammar=grammar,
        )

    @cached_property
    def _compile(self) -> Callable[[Constraint], Grammar]:
        """The constraint compiler, made on first use: loading the vocabulary is slow."""
        from engine_svc.grammar.compiler import GrammarCompiler
        from engine_svc.grammar.vocabulary import load_grammar_vocabulary

        vocabulary = load_grammar_vocabulary(tokenizer_source(self._settings), self._info.vocab_size)
        return GrammarCompiler(vocabulary, limits=compile_limits_of(self._settings)).compile

    def _add(self, request: Request) -> int:
        group_id = self._next_group_id
        self._next_group_id += request.sampling_params.n
        self._engine.add(group_id, request)
        return group_id

    def _step(self, running: dict[int, Answer], progress: Progress) -> None:
        """Make a step, and remove finished requests from ``running``."""
        self._engine.step()
        outputs = self._engine.take_outputs()
        for output in outputs:
            if output.error is not None:
                raise RuntimeError("a prompt could not be computed; the log has the cause") from output.error
            for choice in running[output.group_id].add(output):
                self._engine.stop_choice(output.group_id, choice)
            if output.is_last:
                del running[output.group_id]
        num_tokens = sum(len(choice.token_ids) for output in outputs for choice in output.choices)
        progress.add(num_tokens, sum(output.is_last for output in outputs))
