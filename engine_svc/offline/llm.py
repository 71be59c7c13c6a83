"""A model in this process: load it, pass prompts, get texts."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from functools import partial
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import structlog
from pydantic import ValidationError

from engine_svc.config import Settings
from engine_svc.embedding.interface import EmbedderInfo, EmbeddingParams, Pooling, Vector
from engine_svc.embedding.validation import check_pooling
from engine_svc.loading import load_model
from engine_svc.offline.answer import Output
from engine_svc.offline.generator import Generator
from engine_svc.offline.params import SamplingParams, message_of
from engine_svc.offline.text import Text, load_text
from svclib.config import ServiceSettings, SettingsError, faults
from svclib.errors import InvalidRequest, ServiceError

if TYPE_CHECKING:
    from engine_svc.embedding.embedder import Embedder

Prompt: TypeAlias = str | SequenceOf[int]
Message: TypeAlias = Mapping[str, Any]
Params: TypeAlias = SamplingParams | SequenceOf[SamplingParams] | None

_FOR_SERVING: Final = {*ServiceSettings.model_fields, "model", "served_model", "max_waiting", "stall_seconds"}


class LLM:
    """Owns a loaded model. Callable from any thread; calls are serialised.

    ``settings`` are the engine's (see its README), with the same names and defaults; missing ones are taken from the
    environment (``ENGINE_*``), as in the service. ``enforce_eager`` and
    ``tensor_parallel_size`` are accepted for programs written for nano-vllm or vLLM.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        enforce_eager: bool = False,  # noqa: ARG002  # no graphs on a CPU
        tensor_parallel_size: int = 1,
        **settings: Any,
    ) -> None:
        """Load a folder, a .gguf file or a Hugging Face id.

        ``enforce_eager`` has no effect: no graphs are captured on a CPU. Raises ``TypeError`` for an unknown setting,
        ``ValueError`` for an invalid value or a model that cannot be loaded.
        """
        if tensor_parallel_size != 1:
            raise ValueError(f"tensor_parallel_size must be 1, not {tensor_parallel_size}: more is not supported yet")
        _log_faults_only()
        chosen = _settings(os.fspath(model), settings)
        try:
            self._model, self._text = _load(chosen)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        self._lock = threading.Lock()
        weakref.finalize(self, self._text.close)

    def get_tokenizer(self) -> Any:
        """The model's tokenizer, as a transformers tokenizer."""
        return self._text.tokenizer

    def generate(
        self, prompts: Prompt | SequenceOf[Prompt], sampling_params: Params = None, use_tqdm: bool = True
    ) -> list[Output]:
        """Complete one prompt or many; outputs are in the order of the prompts.

        A prompt is a text or a list of token ids. ``sampling_params`` are for all prompts, or one for each. All prompts
        are checked before the first is computed: raises ``ValueError`` with the field and the index of the prompt.
        Ctrl-C aborts the call and leaves the model usable.
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
        """Answer one conversation or many. See ``generate`` for everything but the messages.

        Messages are dicts as in the OpenAI API, rendered by the model's own template or ``chat_template``, with the
        variables ``chat_template_kwargs``: the prompt is the service's for the same request. Raises ``ValueError`` for
        messages that the template cannot express or refuses.
        """
        encode = partial(
            self._text.encode_chat,
            tools=tools,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template_kwargs=chat_template_kwargs,
        )
        try:
            prompts = [encode(conversation) for conversation in _conversations(messages)]
        except ServiceError as error:
            raise ValueError(message_of(error)) from None
        return self._run(prompts, sampling_params, use_tqdm, continue_prompts=continue_final_message)

    def embed(
        self,
        texts: Prompt | SequenceOf[Prompt],
        *,
        pooling: Pooling | None = None,
        dimensions: int | None = None,
        normalize: bool = True,
    ) -> list[Vector]:
        """A vector for each text, in order: float32 [dimensions].

        ``pooling`` of None is the model's own. ``dimensions`` truncates the vectors, for models trained for it
        (Matryoshka); with ``normalize`` they are then L2-normalised. Raises ``ValueError`` with the index of an invalid
        text, or if the model was loaded to generate.
        """
        if isinstance(self._model, Generator):
            raise ValueError('generation model: embed is not supported; load it with task="embed"')
        token_ids = [self._token_ids(text) for text in _listed(texts)]
        if not token_ids:
            return []
        try:
            params = EmbeddingParams(None if pooling is None else check_pooling(pooling), normalize, dimensions)
            with self._lock:
                return self._model.embed(token_ids, params)
        except InvalidRequest as error:
            raise ValueError(message_of(error)) from None

    def _token_ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self._text.encode(prompt)
        if not isinstance(prompt, (list, tuple)):
            raise TypeError(f"a prompt must be a string or a list of token ids, not {type(prompt).__name__}")
        return [index(token_id) for token_id in prompt]

    def _run(
        self, prompts: list[list[int]], sampling_params: Params, use_tqdm: bool, *, continue_prompts: bool = False
    ) -> list[Output]:
        if not isinstance(self._model, Generator):
            raise ValueError("embedding model: generate and chat are not supported")
        params = _one_for_each(prompts, sampling_params)
        with self._lock:
            return self._model.generate(prompts, params, show_progress=use_tqdm, continue_prompts=continue_prompts)


def _load(settings: Settings) -> tuple[Generator | Embedder, Text]:
    loaded = load_model(settings)
    text = load_text(settings.model)
    if isinstance(loaded.info, EmbedderInfo):
        return cast("Embedder", loaded), text
    return Generator(settings, loaded, text), text


def _settings(model: str, given: Mapping[str, Any]) -> Settings:
    known = sorted(Settings.model_fields.keys() - _FOR_SERVING)
    for name in given.keys() - set(known):
        raise TypeError(f"LLM() got an unexpected keyword argument {name!r}; settings: {', '.join(known)}")
    try:
        settings = Settings(model=model, **given)
    except ValidationError as error:
        raise ValueError(faults(error)) from None
    if settings.simulated:
        raise ValueError("model: the simulated model is not supported here, because it has no tokenizer")
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
        raise ValueError(
            f"sampling_params must be one, or one for each of the {len(prompts)} prompts, not {len(params)}"
        )
    return list(params)


def _log_faults_only() -> None:
    """Unless the program configured structlog, log only warnings, to standard error."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger("warning"),
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        )
