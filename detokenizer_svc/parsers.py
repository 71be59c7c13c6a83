"""Makes the parsers that a request names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from detokenizer_svc.reasoning import REASONING_PARSERS
from detokenizer_svc.stage import ParserContext, Stage
from detokenizer_svc.tools import TOOL_PARSERS
from detokenizer_svc.tools.in_thinking import CallsInThinking
from svclib.errors import InvalidRequest

_Factory = Callable[[ParserContext], Stage]
_FactoryT = TypeVar("_FactoryT", bound=_Factory)


class Parsers(NamedTuple):
    """The stages of a choice: one that takes the thinking out, if there is one, and those after it."""

    thinking: Stage | None
    calls: list[Stage]


def make_parsers(
    reasoning_parser: str, tool_parser: str, context: ParserContext, *, calls_in_thinking: bool = True
) -> Parsers:
    """The stages for two names; empty: none. One name for both: a format that is both, read by one stage.

    Without ``calls_in_thinking`` a call counts only after the thinking.

    Raises ``InvalidRequest`` for an unknown name.
    """
    reasoning = _look_up(REASONING_PARSERS, reasoning_parser, "reasoning_parser")
    tools = _look_up(TOOL_PARSERS, tool_parser, "tool_parser")
    if reasoning is not None and reasoning is tools:
        return Parsers(None, [reasoning(context)])
    calls: list[Stage] = []
    if reasoning is not None and tools is not None and calls_in_thinking:
        calls.append(CallsInThinking(tools, context))
    if tools is not None:
        calls.append(tools(context))
    return Parsers(None if reasoning is None else reasoning(context), calls)


def _look_up(parsers: Mapping[str, _FactoryT], name: str, param: str) -> _FactoryT | None:
    if not name:
        return None
    if name not in parsers:
        raise InvalidRequest(f"unknown {param} {name!r}; known are {', '.join(sorted(parsers))}", param=param)
    return parsers[name]
