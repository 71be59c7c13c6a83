"""Thinking options of a request as variables of the model's chat template.

An option that the template reads becomes a variable. Turning thinking off has no effect on a model without reasoning,
and is accepted. An option that a reasoning model's template does not read is an error, never ignored.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from gateway.generation.model import Model
from gateway.generation.request import Conversation, GenerationRequest, ThinkingOption
from svclib.errors import Unsupported


def apply_thinking_options(request: GenerationRequest, model: Model) -> GenerationRequest:
    """The request with its options as template variables. Raises ``Unsupported`` for one that has no effect here."""
    conversation = request.prompt
    if not isinstance(conversation, Conversation) or not conversation.thinking:
        return request
    kwargs: dict[str, Any] = json.loads(conversation.template_kwargs_json or "{}")
    for option in conversation.thinking:
        if variables := _template_variables(option, model.template_variables):
            kwargs = variables | kwargs
        elif not model.is_reasoning_model and option.satisfied_without_thinking:
            kwargs = {name: value for name, value in kwargs.items() if name not in option.variables}
        elif not (model.is_reasoning_model and option.is_template_variable):
            raise Unsupported(f"{option.param} is not supported{_reason(option, model)}", param=option.param)
    kwargs_json = json.dumps(kwargs, ensure_ascii=False) if kwargs else ""
    return replace(request, prompt=replace(conversation, template_kwargs_json=kwargs_json))


def _template_variables(option: ThinkingOption, template_variables: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in option.variables.items() if name in template_variables}


def _reason(option: ThinkingOption, model: Model) -> str:
    if not model.is_reasoning_model:
        return ": this model does not support thinking"
    if option.variables:
        return ": this model's chat template has no such variable"
    return ": reasoning is always returned as reasoning_content"
