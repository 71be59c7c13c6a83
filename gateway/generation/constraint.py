"""The constraint on the output that a request asks for, as the engine takes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from gateway.generation.call_grammar import CallGrammar, CallSyntax
from gateway.generation.prompt import ReasoningState, ReasoningTags
from gateway.generation.request import GenerationRequest, Tool
from gateway.policy.limits import MAX_CALL_SCHEMAS_CHARS
from svclib.errors import InvalidRequest

_SCHEMA: Final = re.compile(r"grammar\.json\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the output must match. ``kind`` is a field of ``SamplingParams`` in engine.proto, which documents it."""

    kind: Literal["json_object", "json_schema", "grammar"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning at the start of the output, to which a constraint does not apply."""

    state: ReasoningState
    tags: ReasoningTags


def constraining_field(request: GenerationRequest) -> str:
    """The client's field that asks for a constraint; empty: none."""
    if request.tools and (request.tool_choice.is_forced or request.tool_choice.allowed is not None):
        return "tool_choice"
    if request.response_format is not None:
        return request.names.response_format
    return _constraining_tool_field(request)


def build_constraint(request: GenerationRequest, syntax: CallSyntax | None) -> Constraint | None:
    """The constraint of a request; None: any output is allowed. ``syntax`` is required when there are tools.

    Raises ``InvalidRequest`` for tools whose schemas are too large or do not describe an object.
    """
    if not constraining_field(request):
        return None
    if request.tools:
        assert syntax is not None
        _check_size(request)
        _check_arguments(request)
        return Constraint("grammar", _grammar(request, CallGrammar(syntax, _allowed(request), _several(request))))
    assert request.response_format is not None
    schema = request.response_format.schema_json
    return Constraint("json_object") if schema is None else Constraint("json_schema", schema)


def client_error(error: InvalidRequest, request: GenerationRequest) -> InvalidRequest:
    """An engine's error about a constraint as an error about the client's field."""
    param, place = constraining_field(request), ""
    if number := _SCHEMA.fullmatch(error.param or ""):
        param, place = _schema_of(int(number[1]), request)
    elif error.param == "json_schema":
        place = request.names.response_schema
    return type(error)(f"{place or param}: {error.message}", param=param)


def _schema_of(number: int, request: GenerationRequest) -> tuple[str, str]:
    """Field and place of a schema in a grammar of tool calls. The schema of the content is the last one."""
    allowed = _allowed(request)
    if number >= len(allowed):
        return request.names.response_format, request.names.response_schema
    param = _parameters_of(allowed[number], request)
    return param, param


def _parameters_of(tool: Tool, request: GenerationRequest) -> str:
    return f"{request.names.function.format(request.tools.index(tool))}.parameters"


def _check_size(request: GenerationRequest) -> None:
    """Checked before time is spent on the schemas. The engine limits what it compiles as well."""
    size = sum(len(tool.parameters_json or "") for tool in _allowed(request))
    if size > MAX_CALL_SCHEMAS_CHARS:
        raise InvalidRequest(
            f"{constraining_field(request)} needs tools whose parameters have at most {MAX_CALL_SCHEMAS_CHARS} "
            "characters in total",
            param="tools",
        )


def _check_arguments(request: GenerationRequest) -> None:
    """Arguments are an object, so their schema must allow one."""
    for tool in _allowed(request):
        kind = orjson.loads(tool.parameters_json or "{}").get("type", "object")
        if kind != "object" and "object" not in kind:
            param = _parameters_of(tool, request)
            raise InvalidRequest(f"{param}.type must be `object` with {constraining_field(request)}", param=param)


def _constraining_tool_field(request: GenerationRequest) -> str:
    if not request.tools:
        return ""
    if not request.parallel_tool_calls:
        return "parallel_tool_calls"
    strict = next((number for number, tool in enumerate(request.tools) if tool.strict), None)
    return "" if strict is None else f"{request.names.function.format(strict)}.strict"


def _grammar(request: GenerationRequest, calls: CallGrammar) -> str:
    """With a forced call there is no content, so ``response_format`` does not apply."""
    if request.tool_choice.is_forced:
        return calls.only_calls()
    if request.response_format is not None:
        return calls.calls_or_json(request.response_format.schema_json)
    return calls.calls_in_text()


def _allowed(request: GenerationRequest) -> list[Tool]:
    allowed = request.tool_choice.allowed
    return [tool for tool in request.tools if allowed is None or tool.name in allowed]


def _several(request: GenerationRequest) -> bool:
    return request.parallel_tool_calls and request.tool_choice.mode != "named"
