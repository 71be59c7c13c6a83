"""The inputs of the engine and of the detokenizer for one request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.generation.constraint import Constraint, client_error
from gateway.generation.model import Model
from gateway.generation.prompt import Prompt, ScriptTokens
from gateway.generation.request import Conversation, GenerationRequest
from gateway.generation.services import FormatInput, GenerateInput
from svclib.errors import InvalidRequest
from svclib.session import Opening

PROMPT_TAIL_TOKENS: Final = 8
"""More than enough for a character that starts in the prompt."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The inputs of both services. ``explain`` turns an engine's error into one about the client's field."""

    generate: GenerateInput
    format: FormatInput
    opening: Opening
    explain: Callable[[InvalidRequest], InvalidRequest]


def build_plan(request: GenerationRequest, prompt: Prompt, model: Model, opening: Opening) -> Plan:
    """The plan of a request that was checked."""
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
    """Reasoning and tool calls are parsed only if a chat template has shown the model their formats."""
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
    """An engine's error as an error about the client's field."""
    if constraint is not None and (error.param or "").startswith(constraint.kind):
        return client_error(error, request)
    names = {"prompt": request.names.prompt, "max_tokens": request.names.max_tokens, "logprobs": request.names.logprobs}
    error.param = names.get(error.param or "", error.param)
    return error
