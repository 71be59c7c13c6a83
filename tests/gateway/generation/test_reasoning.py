from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.api.chat.read import read_chat
from gateway.generation.model import Model
from gateway.generation.reasoning import apply_thinking_options
from gateway.generation.request import Conversation
from gateway.replicas.describe import build_model
from svclib.errors import Unsupported
from tests.gateway.generation.test_model import AUTO, DETOKENIZER, ENGINE, TOKENIZER
from tests.gateway.running import scripted_stack
from tests.gateway.scripted import ScriptedTokenizer

HI = [{"role": "user", "content": "hi"}]


def model(*variables: str, thinks: bool = True) -> Model:
    tokenizer = replace(TOKENIZER, template_supports_thinking=thinks, reasoning_parser="think" if thinks else "")
    return build_model(replace(tokenizer, template_variables=frozenset(variables)), ENGINE, DETOKENIZER, AUTO)


def kwargs(served: Model, **fields: Any) -> dict[str, Any]:
    """The template variables of a request."""
    request = read_chat({"model": "m", "messages": HI} | fields, reject_unknown=True)
    prompt = apply_thinking_options(request.generation, served).prompt
    assert isinstance(prompt, Conversation)
    text = prompt.template_kwargs_json
    given: dict[str, Any] = json.loads(text) if text else {}
    return given


def refusal(served: Model, **fields: Any) -> Unsupported:
    with pytest.raises(Unsupported) as caught:
        kwargs(served, **fields)
    return caught.value


OFF: list[dict[str, Any]] = [
    {"reasoning_effort": "none"},
    {"enable_thinking": False},
    {"thinking": {"type": "disabled"}},
    {"reasoning": {"enabled": False}},
    {"reasoning": {"effort": "none"}},
    {"thinking_budget": 0},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"chat_template_kwargs": {"thinking": False}},
]
ON: list[dict[str, Any]] = [
    {"reasoning_effort": "high"},
    {"enable_thinking": True},
    {"thinking": {"type": "enabled"}},
    {"reasoning": {"enabled": True}},
    {"reasoning": {"effort": "low"}},
    {"chat_template_kwargs": {"enable_thinking": True}},
]


@pytest.mark.parametrize("fields", OFF, ids=str)
def test_off_is_accepted_without_reasoning(fields: dict[str, Any]) -> None:
    assert kwargs(model(thinks=False), **fields) == {}


@pytest.mark.parametrize("fields", ON, ids=str)
def test_on_is_refused_without_reasoning(fields: dict[str, Any]) -> None:
    error = refusal(model(thinks=False), **fields)
    (name,) = fields
    assert error.param in (name, "chat_template_kwargs.enable_thinking")
    assert "does not support thinking" in error.message


@pytest.mark.parametrize(
    "fields", [{"include_reasoning": False}, {"reasoning_format": "raw"}, {"reasoning": {"exclude": True}}], ids=str
)
def test_hiding_reasoning_is_refused_with_a_reasoning_model(fields: dict[str, Any]) -> None:
    assert kwargs(model(thinks=False), **fields) == {}
    assert refusal(model("enable_thinking"), **fields).param == next(iter(fields))


@pytest.mark.parametrize("fields", OFF[:6], ids=str)
def test_template_variables_are_set(fields: dict[str, Any]) -> None:
    assert kwargs(model("enable_thinking", "messages"), **fields) == {"enable_thinking": False}
    assert kwargs(model("thinking"), **fields) == {"thinking": False}
    assert kwargs(model("enable_thinking", "thinking"), **fields) == {"enable_thinking": False, "thinking": False}
    assert kwargs(model("enable_thinking", thinks=False), **fields) == {"enable_thinking": False}


@pytest.mark.parametrize("fields", OFF[:6] + ON[:5], ids=str)
def test_reasoning_model_without_a_switch_is_an_error(fields: dict[str, Any]) -> None:
    error = refusal(model("messages"), **fields)
    assert error.param == next(iter(fields))
    assert "template" in error.message


def test_effort_needs_a_template_that_reads_it() -> None:
    assert kwargs(model("reasoning_effort"), reasoning_effort="high") == {"reasoning_effort": "high"}
    assert refusal(model("enable_thinking"), reasoning_effort="high").param == "reasoning_effort"
    assert refusal(model("reasoning_effort"), reasoning_effort="none").param == "reasoning_effort"


def test_client_template_variables_are_kept() -> None:
    own = {"thinking": True, "other": 1}
    assert kwargs(model("thinking", "enable_thinking"), enable_thinking=True, chat_template_kwargs=own) == {
        "thinking": True, "enable_thinking": True, "other": 1,
    }  # fmt: skip
    assert kwargs(model("messages"), chat_template_kwargs=own) == own
    assert kwargs(model(thinks=False), chat_template_kwargs={"thinking": False, "other": 1}) == {"other": 1}


def test_request_without_options_is_unchanged() -> None:
    request = read_chat({"model": "m", "messages": HI, "chat_template_kwargs": {"a": 1}}, reject_unknown=True)
    assert apply_thinking_options(request.generation, model()) is request.generation


async def test_tokenizer_gets_the_template_variables() -> None:
    tokenizer = ScriptedTokenizer()
    tokenizer.info.template_variables.extend(["messages", "enable_thinking"])
    tokenizer.info.capabilities.reasoning = True
    async with scripted_stack(tokenizer=tokenizer, unknown_fields="reject") as stack:
        answer = await stack.chat(thinking={"type": "disabled"})
        assert answer.status_code == 200, answer.text
        refused = await stack.chat(reasoning_effort="high")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "reasoning_effort")
    (call,) = tokenizer.calls
    assert json.loads(call.chat_template_kwargs_json) == {"enable_thinking": False}


def test_operator_can_declare_a_reasoning_model() -> None:
    unknowing = replace(TOKENIZER, template_supports_thinking=False, reasoning_parser="")
    served = build_model(unknowing, ENGINE, DETOKENIZER, replace(AUTO, reasoning_parser="think"))
    assert refusal(served, reasoning_effort="none").param == "reasoning_effort"
