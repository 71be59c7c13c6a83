"""A model in this process: load it, hand it prompts, get texts."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from numbers import Integral
from operator import index
from typing import Any, Final, TypeAlias, cast

import structlog
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from engine_svc.config import Settings
from engine_svc.loading import build_engine, capacity_of, load_runner
from engine_svc.metrics import EngineMetrics
from engine_svc.offline.answer import Answer, Output
from engine_svc.offline.interrupts import Interrupts
from engine_svc.offline.params import SamplingParams, told
from engine_svc.offline.progress import Progress
from engine_svc.offline.text import load_text
from engine_svc.request import Request
from engine_svc.validation import check_prompt, check_sampling
from svclib.config import ServiceSettings, SettingsError, faults
from svclib.errors import InvalidRequest

Prompt: TypeAlias = str | SequenceOf[int]
Message: TypeAlias = Mapping[str, Any]
Params: TypeAlias = SamplingParams | SequenceOf[SamplingParams] | None

_FOR_SERVING: Final = {*ServiceSettings.model_fields, "model", "served_model", "max_waiting", "stall_seconds"}


class LLM:
    """Owns a loaded model. Callable from any thread; calls take turns.

    ``settings`` are those of the engine (see its README), by the same names and with the same defaults; what is not
    given is taken from the environment (``ENGINE_*``), as for the service. ``enforce_eager`` and
    ``tensor_parallel_size`` are accepted for programs written for nano-vllm or vLLM.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        enforce_eager: bool = False,  # noqa: ARG002  # there is nothing that it could change
        tensor_parallel_size: int = 1,
        **settings: Any,
    ) -> None:
        """Load a folder, a .gguf file or a Hugging Face id.

        ``enforce_eager`` changes nothing: no graphs are captured on a CPU. Raises ``TypeError`` for a name that is no
        setting, ``ValueError`` for a bad value or a model that cannot be loaded.
        """
        if tensor_parallel_size != 1:
            raise ValueError(f"tensor_parallel_size {tensor_parallel_size} is not supported yet; it must be 1")
        _log_faults_only()
        chosen = _settings(os.fspath(model), settings)
        try:
            runner = load_runner(chosen)
            self._text = load_text(chosen.model)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        self._info = runner.info
        self._capacity = capacity_of(chosen, runner.info)
        self._engine = build_engine(chosen, runner, EngineMetrics(CollectorRegistry(), chosen.model_name))
        self._eos_token_ids = frozenset(runner.info.eos_token_ids) | self._text.eos_token_ids
        self._next_group_id = 0
        self._lock = threading.Lock()

    def get_tokenizer(self) -> Any:
        """The model's tokenizer, as transformers has it."""
        return self._text.tokenizer

    def generate(
        self, prompts: Prompt | SequenceOf[Prompt], sampling_params: Params = None, use_tqdm: bool = True
    ) -> list[Output]:
        """Continue a prompt, or many of them at once; outputs are in the order of the prompts.

        A prompt is a text or a list of token ids. ``sampling_params`` are for all prompts, or one for each. All prompts
        are checked before the first is computed: raises ``ValueError`` naming what is wrong with which. Ctrl-C gives
        up the call and leaves the model usable.
        """
        return self._run([self._token_ids(prompt) for prompt in _listed(prompts)], sampling_params, use_tqdm)

    def chat(
        self,
        messages: SequenceOf[Message] | SequenceOf[SequenceOf[Message]],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        *,
        tools: SequenceOf[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[Output]:
        """Answer a conversation, or many of them at once. See ``generate`` for everything but the messages.

        Messages are dicts as in the OpenAI API, written as a prompt by the model's own template or ``chat_template``,
        to which ``chat_template_kwargs`` are variables. Raises what the template raises.
        """
        options = {
            "tools": None if tools is None else list(tools),
            "chat_template": chat_template,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
            "continue_final_message": continue_final_message,
            **(chat_template_kwargs or {}),
        }
        prompts = [self._text.encode_chat(conversation, **options) for conversation in _conversations(messages)]
        return self._run(prompts, sampling_params, use_tqdm)

    def _token_ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self._text.encode(prompt)
        if not isinstance(prompt, (list, tuple)):
            raise TypeError(f"a prompt is a string or a list of token ids, not {type(prompt).__name__}")
        return [index(token_id) for token_id in prompt]

    def _run(self, prompts: list[list[int]], sampling_params: Params, use_tqdm: bool) -> list[Output]:
        params = _one_for_each(prompts, sampling_params)
        requests = [self._request(*numbered) for numbered in zip(range(len(prompts)), prompts, params, strict=True)]
        answers = [Answer(request, one.stop_strings, self._text) for request, one in zip(requests, params, strict=True)]
        with self._lock, Interrupts() as interrupts, Progress(len(requests), shown=use_tqdm) as progress:
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

    def _request(self, number: int, prompt: list[int], params: SamplingParams) -> Request:
        """Raises ``ValueError`` for what the model cannot do."""
        try:
            rest = self._capacity.max_tokens(len(prompt), params.max_tokens)
            resolved = params.resolve(rest)
            check_prompt(tuple(prompt), self._info.vocab_size)
            check_sampling(resolved, self._info.vocab_size)
        except InvalidRequest as error:
            raise ValueError(f"prompt {number}: {told(error)}") from None
        if min(prompt) < 0:
            raise ValueError(f"prompt {number}: token id {min(prompt)} is below 0")
        return Request(
            request_id=f"prompt {number}",
            prompt_token_ids=tuple(prompt),
            sampling_params=resolved,
            eos_token_ids=self._eos_token_ids,
            arrived_at=time.time(),
            open_ended=params.max_tokens is None,
        )

    def _add(self, request: Request) -> int:
        group_id = self._next_group_id
        self._next_group_id += request.sampling_params.n
        self._engine.add(group_id, request)
        return group_id

    def _step(self, running: dict[int, Answer], progress: Progress) -> None:
        """Make a step, and take what is over out of ``running``. Raises ``RuntimeError`` for a request that failed."""
        self._engine.step()
        outputs = self._engine.take_outputs()
        for output in outputs:
            if output.error is not None:
                raise RuntimeError("a prompt could not be computed; the log says why") from output.error
            for choice in running[output.group_id].hear(output):
                self._engine.stop_choice(output.group_id, choice)
            if output.is_last:
                del running[output.group_id]
        num_tokens = sum(len(choice.token_ids) for output in outputs for choice in output.choices)
        progress.note(num_tokens, sum(output.is_last for output in outputs))


def _settings(model: str, given: Mapping[str, Any]) -> Settings:
    known = sorted(Settings.model_fields.keys() - _FOR_SERVING)
    for name in given.keys() - set(known):
        raise TypeError(f"LLM() got an unexpected keyword argument {name!r}; there are {', '.join(known)}")
    try:
        settings = Settings(model=model, **given)
    except ValidationError as error:
        raise ValueError(faults(error)) from None
    if settings.simulated:
        raise ValueError("model: the simulated model has no text; it is for the services")
    return settings


def _listed(prompts: Prompt | SequenceOf[Prompt]) -> list[Prompt]:
    is_one = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], Integral))
    return cast("list[Prompt]", [prompts] if is_one else list(prompts))


def _conversations(messages: SequenceOf[Message] | SequenceOf[SequenceOf[Message]]) -> list[SequenceOf[Message]]:
    is_one = len(messages) > 0 and isinstance(messages[0], Mapping)
    return cast("list[SequenceOf[Message]]", [messages] if is_one else list(messages))


def _one_for_each(prompts: SequenceOf[object], params: Params) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * len(prompts)
    if len(params) != len(prompts):
        raise ValueError(f"{len(params)} sampling_params for {len(prompts)} prompts; give one, or one for each")
    return list(params)


def _log_faults_only() -> None:
    """Unless the program has said how it wants logs, keep standard output for what it writes itself."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger("warning"),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
