"""Fields about the model's thinking, in the dialects of the servers and providers that clients know.

Each becomes a wish, which ``gateway/thinking.py`` grants or refuses once the model is known. The variables are those of
the models' own chat templates: ``enable_thinking`` (Qwen, GLM, SmolLM), ``thinking`` (DeepSeek, Kimi, Granite),
``reasoning_effort`` (gpt-oss), ``preserve_thinking`` (Qwen), ``clear_thinking`` (GLM).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from gateway.generation.request import ThinkingWish
from svclib.errors import InvalidRequest, Unsupported

_SWITCHES: Final = ("enable_thinking", "thinking")
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_Reader: TypeAlias = Callable[[str, Any], Iterator[ThinkingWish]]


def read_thinking(document: Mapping[str, Any]) -> tuple[ThinkingWish, ...]:
    """The wishes in a request. Raises ``InvalidRequest`` for values that make none, and for two that contradict."""
    wishes = [wish for name, value in document.items() for wish in _read(name, value)]
    wishes += _of_template(document.get("chat_template_kwargs"))
    decided = [wish for wish in wishes if wish.enabled is not None]
    for wish in decided[1:]:
        if wish.enabled is not decided[0].enabled:
            raise InvalidRequest(f"{wish.param} contradicts {decided[0].param}", param=wish.param)
    return tuple(wishes)


def is_about_thinking(name: str) -> bool:
    return name in _READERS


def _read(name: str, value: Any) -> Iterator[ThinkingWish]:
    if value is not None and (reader := _READERS.get(name)):
        yield from reader(name, value)


def _of_template(kwargs: Any) -> Iterator[ThinkingWish]:
    """The template's variables as the client gave them; those say the same as the fields."""
    for name in _SWITCHES if isinstance(kwargs, dict) else ():
        if isinstance(value := kwargs.get(name), bool):
            param = f"chat_template_kwargs.{name}"
            yield ThinkingWish(param, {name: value}, value, met_without_thinking=not value, is_for_template=True)


def _switched(param: str, enabled: bool) -> ThinkingWish:
    return ThinkingWish(param, dict.fromkeys(_SWITCHES, enabled), enabled, met_without_thinking=not enabled)


def _switch(name: str, value: Any) -> Iterator[ThinkingWish]:
    yield _switched(name, _bool(name, value))


def _off_switch(name: str, value: Any) -> Iterator[ThinkingWish]:
    if _bool(name, value):
        yield _switched(name, False)


def _effort(name: str, value: Any) -> Iterator[ThinkingWish]:
    param = name.partition(".")[0]
    if value not in _EFFORTS:
        raise InvalidRequest(f"{name} must be one of {', '.join(_EFFORTS)}", param=param)
    yield _switched(param, False) if value == "none" else ThinkingWish(param, {"reasoning_effort": value}, True)


def _switch_or_effort(name: str, value: Any) -> Iterator[ThinkingWish]:
    """Ollama's ``think``."""
    yield from _effort(name, value) if isinstance(value, str) else _switch(name, value)


def _budget(name: str, value: Any) -> Iterator[ThinkingWish]:
    """Tokens of thinking: 0 is none of it, -1 no limit."""
    param = name.partition(".")[0]
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise InvalidRequest(f"{name} must be an integer of at least -1", param=param)
    if value > 0:
        raise Unsupported(f"{name} is not supported: thinking can be switched off, not limited", param=param)
    if value == 0:
        yield _switched(param, False)


def _thinking(name: str, value: Any) -> Iterator[ThinkingWish]:
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


def _reasoning(name: str, value: Any) -> Iterator[ThinkingWish]:
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
        yield ThinkingWish(name, met_without_thinking=True)


def _history(when_harmless: bool) -> _Reader:
    """Whether the thinking of earlier turns stays in the prompt."""

    def read(name: str, value: Any) -> Iterator[ThinkingWish]:
        kept = _bool(name, value)
        yield ThinkingWish(name, {name: kept}, met_without_thinking=kept is when_harmless)

    return read


def _shown_as(*neutral: Any) -> _Reader:
    """How the thinking comes in the answer: as here, or otherwise, which only a model without thinking can do."""

    def read(name: str, value: Any) -> Iterator[ThinkingWish]:
        if not any(type(value) is type(each) and value == each for each in neutral):
            yield ThinkingWish(name, met_without_thinking=True)

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
    "clear_thinking": _history(when_harmless=True),
    "disable_reasoning": _off_switch,
    "enable_reasoning": _switch,
    "enable_thinking": _switch,
    "hide_reasoning": _shown_as(False),
    "include_reasoning": _shown_as(True),
    "max_reasoning_tokens": _budget,
    "max_thinking_tokens": _budget,
    "preserve_thinking": _history(when_harmless=False),
    "reasoning": _reasoning,
    "reasoning_budget": _budget,
    "reasoning_budget_tokens": _budget,
    "reasoning_effort": _effort,
    "reasoning_format": _shown_as("parsed", "auto", "deepseek"),
    "reasoning_split": _shown_as(True),
    "separate_reasoning": _shown_as(True),
    "stream_reasoning": _shown_as(True),
    "think": _switch_or_effort,
    "thinking": _thinking,
    "thinking_budget": _budget,
    "thinking_budget_tokens": _budget,
    "thinking_forced_open": _shown_as(False),
    "thinking_token_budget": _budget,
}
