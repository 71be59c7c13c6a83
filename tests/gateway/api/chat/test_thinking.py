from __future__ import annotations

from typing import Any

import pytest

from gateway.api.chat.read import read_chat
from gateway.api.chat.thinking import _READERS
from gateway.generation.request import ThinkingOption
from svclib.errors import InvalidRequest, Unsupported
from tests.gateway.api.chat.reading import conversation

HI = [{"role": "user", "content": "hi"}]


def read(**fields: Any) -> tuple[ThinkingOption, ...]:
    request = read_chat({"model": "m", "messages": HI} | fields, reject_unknown=True)
    return conversation(request).thinking


def fault(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    return caught.value


OFF: list[tuple[str, Any]] = [
    ("reasoning_effort", "none"),
    ("enable_thinking", False),
    ("enable_reasoning", False),
    ("disable_reasoning", True),
    ("think", False),
    ("think", "none"),
    ("thinking", False),
    ("thinking", {"type": "disabled"}),
    ("thinking", {"budget_tokens": 0}),
    ("reasoning", False),
    ("reasoning", {"enabled": False}),
    ("reasoning", {"effort": "none"}),
    ("reasoning", {"max_tokens": 0}),
    ("thinking_budget", 0),
    ("thinking_budget_tokens", 0),
    ("thinking_token_budget", 0),
    ("reasoning_budget", 0),
    ("reasoning_budget_tokens", 0),
    ("max_thinking_tokens", 0),
    ("max_reasoning_tokens", 0),
]


@pytest.mark.parametrize(("name", "value"), OFF)
def test_thinking_off(name: str, value: Any) -> None:
    (wish,) = read(**{name: value})
    assert wish == ThinkingOption(
        name, {"enable_thinking": False, "thinking": False}, False, satisfied_without_thinking=True
    )


ON: list[tuple[str, Any]] = [
    ("enable_thinking", True),
    ("think", True),
    ("thinking", True),
    ("thinking", {"type": "enabled"}),
    ("enable_reasoning", True),
    ("reasoning", True),
    ("reasoning", {"enabled": True}),
]


@pytest.mark.parametrize(("name", "value"), ON)
def test_thinking_on(name: str, value: Any) -> None:
    assert read(**{name: value}) == (ThinkingOption(name, {"enable_thinking": True, "thinking": True}, True),)


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh", "max"])
def test_efforts(effort: str) -> None:
    for name, value in (("reasoning_effort", effort), ("reasoning", {"effort": effort}), ("think", effort)):
        assert read(**{name: value}) == (ThinkingOption(name, {"reasoning_effort": effort}, True),)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reasoning_effort", None), ("thinking", {}), ("thinking", {"type": "auto"}),
        ("thinking", {"type": "adaptive"}),
        ("thinking_budget", -1), ("reasoning_budget", -1), ("reasoning", {}), ("reasoning", {"effort": None}),
        ("reasoning", {"exclude": False}), ("disable_reasoning", False), ("include_reasoning", True),
        ("separate_reasoning", True), ("stream_reasoning", True), ("reasoning_split", True), ("hide_reasoning", False),
        ("reasoning_format", "parsed"), ("reasoning_format", "auto"), ("reasoning_format", "deepseek"),
        ("thinking_forced_open", False),
    ],
)  # fmt: skip
def test_values_without_effect(name: str, value: Any) -> None:
    assert read(**{name: value}) == ()


RETURNED_OTHERWISE: list[tuple[str, Any]] = [
    ("include_reasoning", False), ("separate_reasoning", False), ("stream_reasoning", False),
    ("reasoning_split", False), ("hide_reasoning", True), ("reasoning_format", "raw"),
    ("reasoning_format", "hidden"), ("reasoning_format", "none"), ("reasoning", {"exclude": True}),
    ("include_reasoning", 1), ("thinking_forced_open", True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), RETURNED_OTHERWISE)
def test_reasoning_that_is_not_returned_as_reasoning_content(name: str, value: Any) -> None:
    assert read(**{name: value}) == (ThinkingOption(name, satisfied_without_thinking=True),)


HISTORY = (("preserve_thinking", False), ("clear_thinking", True))
"""Each with the value that has no effect on a model without reasoning."""


def test_reasoning_of_earlier_turns() -> None:
    for name, harmless in HISTORY:
        for value in (True, False):
            wish = ThinkingOption(name, {name: value}, satisfied_without_thinking=value is harmless)
            assert read(**{name: value}) == (wish,)


def test_template_variables_are_options() -> None:
    assert read(chat_template_kwargs={"enable_thinking": False, "other": 1}) == (
        ThinkingOption(
            "chat_template_kwargs.enable_thinking", {"enable_thinking": False}, False,
            satisfied_without_thinking=True, is_template_variable=True,
        ),
    )  # fmt: skip
    assert read(chat_template_kwargs={"enable_thinking": "no", "thinking": None}) == ()


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("reasoning_effort", {"reasoning_effort": "extreme"}),
        ("reasoning_effort", {"reasoning_effort": 5}),
        ("reasoning_effort", {"reasoning_effort": ["none"]}),
        ("enable_thinking", {"enable_thinking": "false"}),
        ("enable_thinking", {"enable_thinking": 0}),
        ("thinking", {"thinking": "disabled"}),
        ("thinking", {"thinking": {"type": "off"}}),
        ("thinking", {"thinking": {"type": ["disabled"]}}),
        ("thinking", {"thinking": {"type": "enabled", "budget_tokens": "x"}}),
        ("reasoning", {"reasoning": {"enabled": "yes"}}),
        ("reasoning", {"reasoning": {"effort": "extreme"}}),
        ("thinking_budget", {"thinking_budget": -2}),
        ("thinking_budget", {"thinking_budget": True}),
        ("thinking_budget_tokens", {"thinking_budget_tokens": 1.5}),
        ("reasoning_effort", {"enable_thinking": False, "reasoning_effort": "high"}),
        ("enable_thinking", {"thinking": {"type": "disabled"}, "enable_thinking": True}),
        ("reasoning", {"reasoning": {"enabled": False, "effort": "high"}}),
        (
            "chat_template_kwargs.enable_thinking",
            {"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}},
        ),
    ],
)
def test_invalid_and_contradicting_values(param: str, fields: dict[str, Any]) -> None:
    error = fault(**fields)
    assert error.param == param
    assert not isinstance(error, Unsupported)


UNSUPPORTED: list[tuple[str, Any]] = [
    ("thinking_budget", 1), ("thinking_budget_tokens", 1024), ("thinking_token_budget", 5), ("reasoning_budget", 5),
    ("reasoning_budget_tokens", 5), ("max_thinking_tokens", 5), ("max_reasoning_tokens", 5),
    ("thinking", {"type": "enabled", "budget_tokens": 1024}), ("reasoning", {"max_tokens": 5}),
    ("thinking", {"type": "enabled", "display": "summarized"}), ("reasoning", {"summary": "auto"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED)
def test_budgets_and_unknown_members_are_unsupported(name: str, value: Any) -> None:
    error = fault(**{name: value})
    assert isinstance(error, Unsupported)
    assert error.param == name


def test_options_that_agree() -> None:
    assert len(read(enable_thinking=False, reasoning_effort="none", thinking={"type": "disabled"})) == 3


def test_every_thinking_field_has_a_value_with_an_effect() -> None:
    assert {name for name, _ in (*OFF, *ON, *RETURNED_OTHERWISE, *HISTORY, *UNSUPPORTED)} == set(_READERS)
