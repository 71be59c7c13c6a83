"""Builds the parsers that a request names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from detokenizer_svc.reasoning import REASONING_PARSERS
from detokenizer_svc.stage import ParserContext, Stage
from detokenizer_svc.tools import TOOL_PARSERS
from detokenizer_svc.tools.in_reasoning import CallsInReasoning
from svclib.errors import InvalidRequest

_Factory = Callable[[ParserContext], Stage]
_FactoryT = TypeVar("_FactoryT", bound=_Factory)


class Parsers(NamedTuple):
    """The stages of a choice: the reasoning parser, if there is one, and the stages after it."""

    reasoning: Stage | None
    calls: list[Stage]


def make_parsers(
    reasoning_parser: str, tool_parser: str, context: ParserContext, *, calls_in_reasoning: bool = True
) -> Parsers:
    """The stages for two parser names; empty: none. If both names are one parser, one stage does both.

    Without ``calls_in_reasoning``, a tool call inside reasoning is reasoning.

    Raises ``InvalidRequest`` for an unknown name.
    """
    reasoning = _look_up(REASONING_PARSERS, reasoning_parser, "reasoning_parser")
    tools = _look_up(TOOL_PARSERS, tool_parser, "tool_parser")
    if reasoning is not None and reasoning is tools:
        return Parsers(None, [reasoning(context)])
    calls: list[Stage] = []
    if reasoning is not None and tools is not None and calls_in_reasoning:
        calls.append(CallsInReasoning(tools, context))
    if tools is not None:
        calls.append(tools(context))
    return Parsers(None if reasoning is None else reasoning(context), calls)


def _look_up(parsers: Mapping[str, _FactoryT], name: str, param: str) -> _FactoryT | None:
    if not name:
        return None
    if name not in parsers:
        raise InvalidRequest(f"unknown {param} {name!r}; supported: {', '.join(sorted(parsers))}", param=param)
    return parsers[name]
