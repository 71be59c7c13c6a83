"""What a request asks of the model's thinking, in the model's own terms: variables of its chat template.

Switching thinking off asks for nothing of a model that does not think. A model whose template has the switch is told
there; one that thinks and has none is not asked in vain: that is an error.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from gateway.generation.model import Model
from gateway.generation.request import Conversation, GenerationRequest, ThinkingWish
from svclib.errors import Unsupported


def with_thinking(request: GenerationRequest, model: Model) -> GenerationRequest:
    """The request with its wishes as template variables. Raises ``Unsupported`` for one that cannot be granted."""
    conversation = request.prompt
    if not isinstance(conversation, Conversation) or not conversation.thinking:
        return request
    kwargs: dict[str, Any] = json.loads(conversation.template_kwargs_json or "{}")
    for wish in conversation.thinking:
        if granted := _granted(wish, model.template_variables):
            kwargs = granted | kwargs
        elif not model.thinks and wish.met_without_thinking:
            kwargs = {name: value for name, value in kwargs.items() if name not in wish.variables}
        elif not (model.thinks and wish.is_for_template):
            raise Unsupported(f"{wish.param} is not supported{_reason(wish, model)}", param=wish.param)
    kwargs_json = json.dumps(kwargs, ensure_ascii=False) if kwargs else ""
    return replace(request, prompt=replace(conversation, template_kwargs_json=kwargs_json))


def _granted(wish: ThinkingWish, template_variables: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in wish.variables.items() if name in template_variables}


def _reason(wish: ThinkingWish, model: Model) -> str:
    if not model.thinks:
        return ": this model does not think"
    if wish.variables:
        return ": this model's chat template has no variable for it"
    return ": thinking comes beside the answer, as reasoning_content"
