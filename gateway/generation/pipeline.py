"""One request from hop 2 to hop 12, in order, whatever endpoint it came by: render, generate, format.

    hop 2      choose a model, and replicas that agree on it     Models.find, Replicas.choose
    hop 3, 4   prompt, tools    -> prompt token ids              Prompting.prompt
    hop 5-9    prompt token ids -> output token ids              Attempt
    hop 10, 11 output token ids -> content, thinking, calls      Attempt
    hop 12     -> chunks of a stream or one JSON                 the reader of ``Pipeline.answer``

It knows neither HTTP nor whether the answer will be a stream: a single answer is the stream, collected.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.generation.attempt import Attempt, Plan
from gateway.generation.constraint import Constraint, fault_of
from gateway.generation.events import Event
from gateway.generation.model import Model
from gateway.generation.prompt import Prompt, ScriptTokens
from gateway.generation.prompting import Prompting
from gateway.generation.reasoning import with_thinking
from gateway.generation.record import RequestRecord
from gateway.generation.request import Conversation, GenerationRequest
from gateway.generation.services import FormatInput, GenerateInput, Models
from svclib.errors import InvalidRequest, ServiceError
from svclib.session import Opening

PROMPT_TAIL_TOKENS: Final = 8
"""More than enough for a character that the prompt began."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How a request goes through the three services. ``observe_step``: see ``Attempt``."""

    models: Models
    observe_step: Callable[[float | None], None]

    async def answer(
        self,
        request: GenerationRequest,
        record: RequestRecord,
        *,
        until: float,
        give_up: Callable[[ServiceError], None],
        ping_seconds: float | None = None,
    ) -> AsyncGenerator[list[Event], None]:
        """What becomes of a request: batches of all that has happened since the last one, until every choice ended.

        ``until`` is the Unix time at which the services may give it up. ``give_up`` is called when batches are taken
        so slowly that the work has been ended: the reader may be waiting for something else. Everything that can be
        wrong with the request is found before the first batch. Raises ``ServiceError``. Closing the iterator ends the
        work in all services.
        """
        served = self.models.find(request.model)
        record.expect(request.n, served.model.fingerprint)
        served.model.check(request)
        request = with_thinking(request, served.model)
        prompt = await Prompting(served, record).prompt(request)
        served.model.check_length(request, len(prompt.token_ids))
        opening = Opening(record.request_id, max(0.0, until - time.time()), record.traceparent)
        plan = plan_of(request, prompt, served.model, opening)
        with Attempt(served, plan, record, self.observe_step) as attempt:
            async with aclosing(attempt.batches(give_up, ping_seconds)) as batches:
                async for batch in batches:
                    yield batch


def plan_of(request: GenerationRequest, prompt: Prompt, model: Model, opening: Opening) -> Plan:
    """What the engine and the detokenizer are asked, of a request that was checked."""
    constraint = model.constraint(request)
    return Plan(
        _generate_input(request, prompt, model, constraint),
        _format_input(request, prompt, model, constraint),
        opening,
        partial(_explain, request, constraint),
    )


def _generate_input(
    request: GenerationRequest, prompt: Prompt, model: Model, constraint: Constraint | None
) -> GenerateInput:
    script = request.script
    return GenerateInput(
        prompt,
        request.sampling,
        request.n,
        None if script is None else ScriptTokens(prompt.script, script.repeat, script.delay_ms, script.finish),
        constraint,
        model.thinking(prompt) if isinstance(request.prompt, Conversation) else None,
    )


def _format_input(
    request: GenerationRequest, prompt: Prompt, model: Model, constraint: Constraint | None
) -> FormatInput:
    """Only where a template has shown the model how to think and to call are thinking and calls looked for."""
    choice, is_rendered = request.tool_choice, isinstance(request.prompt, Conversation)
    return FormatInput(
        prompt_tail_ids=prompt.token_ids[-PROMPT_TAIL_TOKENS:] if request.continues_prompt else (),
        stop=request.stop,
        min_tokens=request.sampling.min_tokens,
        skip_special_tokens=request.skip_special_tokens,
        reasoning_parser=model.reasoning_parser if is_rendered else "",
        reasoning_state=model.reasoning_state(prompt),
        tool_parser=model.tool_parser if request.tools else "",
        tools=request.tools,
        named_function=choice.allowed[0] if choice.mode == "named" and choice.allowed else "",
        calls_after_reasoning=constraint is not None,
    )


def _explain(request: GenerationRequest, constraint: Constraint | None, error: InvalidRequest) -> InvalidRequest:
    """What the engine refuses, said of the client's field."""
    if constraint is not None and (error.param or "").startswith(constraint.kind):
        return fault_of(error, request)
    names = {"prompt": request.names.prompt, "max_tokens": request.names.max_tokens, "logprobs": request.names.logprobs}
    error.param = names.get(error.param or "", error.param)
    return error
