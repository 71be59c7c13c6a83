"""Fields that control thinking, in the dialects of servers and providers.

Each becomes a ``ThinkingOption``, which ``gateway/generation/reasoning.py`` applies or refuses once the model is known.
The variables are those of the models' own chat templates: ``enable_thinking`` (Qwen, GLM, SmolLM), ``thinking``
(DeepSeek, Kimi, Granite), ``reasoning_effort`` (gpt-oss), ``preserve_thinking`` (Qwen), ``clear_thinking`` (GLM).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from gateway.generation.request import ThinkingOption
from svclib.errors import InvalidRequest, Unsupported

_SWITCHES: Final = ("enable_thinking", "thinking")
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_Reader: TypeAlias = Callable[[str, Any], Iterator[ThinkingOption]]


def read_thinking(document: Mapping[str, Any]) -> tuple[ThinkingOption, ...]:
    """The options in a request. Raises ``InvalidRequest`` for invalid values, and for options that contradict."""
    options = [option for name, value in document.items() for option in _read(name, value)]
    options += _of_template(document.get("chat_template_kwargs"))
    switches = [option for option in options if option.enabled is not None]
    for switch in switches[1:]:
        if switch.enabled is not switches[0].enabled:
            raise InvalidRequest(f"{switch.param} contradicts {switches[0].param}", param=switch.param)
    return tuple(options)


def is_thinking_field(name: str) -> bool:
    return name in _READERS


def _read(name: str, value: Any) -> Iterator[ThinkingOption]:
    if value is not None and (reader := _READERS.get(name)):
        yield from reader(name, value)


def _of_template(kwargs: Any) -> Iterator[ThinkingOption]:
    """Template variables that the client sets directly; they mean the same as the fields."""
    for name in _SWITCHES if isinstance(kwargs, dict) else ():
        if isinstance(value := kwargs.get(name), bool):
            param = f"chat_template_kwargs.{name}"
            yield ThinkingOption(
                param, {name: value}, value, satisfied_without_thinking=not value, is_template_variable=True
            )


def _switched(param: str, enabled: bool) -> ThinkingOption:
    return ThinkingOption(param, dict.fromkeys(_SWITCHES, enabled), enabled, satisfied_without_thinking=not enabled)


def _switch(name: str, value: Any) -> Iterator[ThinkingOption]:
    yield _switched(name, _bool(name, value))


def _off_switch(name: str, value: Any) -> Iterator[ThinkingOption]:
    if _bool(name, value):
        yield _switched(name, False)


def _effort(name: str, value: Any) -> Iterator[ThinkingOption]:
    param = name.partition(".")[0]
    if value not in _EFFORTS:
        raise InvalidRequest(f"{name} must be one of {', '.join(_EFFORTS)}", param=param)
    yield _switched(param, False) if value == "none" else ThinkingOption(param, {"reasoning_effort": value}, True)


def _switch_or_effort(name: str, value: Any) -> Iterator[ThinkingOption]:
    """Ollama's ``think``."""
    yield from _effort(name, value) if isinstance(value, str) else _switch(name, value)


def _budget(name: str, value: Any) -> Iterator[ThinkingOption]:
    """A budget of reasoning tokens: 0 turns thinking off, -1 is no limit."""
    param = name.partition(".")[0]
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise InvalidRequest(f"{name} must be an integer of at least -1", param=param)
    if value > 0:
        raise Unsupported(f"{name} is not supported: thinking can be turned off (0) but not limited", param=param)
    if value == 0:
        yield _switched(param, False)


def _thinking(name: str, value: Any) -> Iterator[ThinkingOption]:
    """``thinking``: a switch, or an object as in the APIs of Anthropic, DeepSeek, GLM and others."""
    if not isinstance(value, dict):
        yield from _switch(name, value)
        return
    _check_members(name, value, ("type", "budget_tokens"))
    match value.get("type"):
        case "enabled":
            yield _switched(name, True)
        case "disabled":
            yield _switched(name, False)
        case None | "adaptive" | "auto":
            pass
        case _:
            raise InvalidRequest(f"{name}.type must be `enabled`, `disabled` or `adaptive`", param=name)
    if value.get("budget_tokens") is not None:
        yield from _budget(f"{name}.budget_tokens", value["budget_tokens"])


def _reasoning(name: str, value: Any) -> Iterator[ThinkingOption]:
    """``reasoning``: an object as in the APIs of OpenRouter, Together and OpenAI's Responses, or a switch."""
    if not isinstance(value, dict):
        yield from _switch(name, value)
        return
    _check_members(name, value, ("enabled", "effort", "max_tokens", "exclude"))
    if value.get("enabled") is not None:
        yield _switched(name, _bool(f"{name}.enabled", value["enabled"]))
    if value.get("effort") is not None:
        yield from _effort(f"{name}.effort", value["effort"])
    if value.get("max_tokens") is not None:
        yield from _budget(f"{name}.max_tokens", value["max_tokens"])
    if value.get("exclude"):
        yield ThinkingOption(name, satisfied_without_thinking=True)


def _history(default: bool) -> _Reader:
    """Whether the reasoning of earlier turns stays in the prompt."""

    def read(name: str, value: Any) -> Iterator[ThinkingOption]:
        kept = _bool(name, value)
        yield ThinkingOption(name, {name: kept}, satisfied_without_thinking=kept is default)

    return read


def _returned_as(*supported: Any) -> _Reader:
    """How reasoning is returned. Other values than ``supported`` are accepted only for a model without reasoning."""

    def read(name: str, value: Any) -> Iterator[ThinkingOption]:
        if not any(type(value) is type(each) and value == each for each in supported):
            yield ThinkingOption(name, satisfied_without_thinking=True)

    return read


def _check_members(name: str, value: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for member, given in value.items():
        if given is not None and member not in known:
            raise Unsupported(f"{name}.{member[:100]} is not supported", param=name)


def _bool(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidRequest(f"{name} must be true or false", param=name.partition(".")[0])


_READERS: Final[Mapping[str, _Reader]] = {
    "clear_thinking": _history(default=True),
    "disable_reasoning": _off_switch,
    "enable_reasoning": _switch,
    "enable_thinking": _switch,
    "hide_reasoning": _returned_as(False),
    "include_reasoning": _returned_as(True),
    "max_reasoning_tokens": _budget,
    "max_thinking_tokens": _budget,
    "preserve_thinking": _history(default=False),
    "reasoning": _reasoning,
    "reasoning_budget": _budget,
    "reasoning_budget_tokens": _budget,
    "reasoning_effort": _effort,
    "reasoning_format": _returned_as("parsed", "auto", "deepseek"),
    "reasoning_split": _returned_as(True),
    "separate_reasoning": _returned_as(True),
    "stream_reasoning": _returned_as(True),
    "think": _switch_or_effort,
    "thinking": _thinking,
    "thinking_budget": _budget,
    "thinking_budget_tokens": _budget,
    "thinking_forced_open": _returned_as(False),
    "thinking_token_budget": _budget,
}
